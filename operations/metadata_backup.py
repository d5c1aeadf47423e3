"""Metadata backup: each night, copies Dagster's and MLflow's databases, the recipes, and what was taken down of
datasets and their tokenizers to the backup tier.

The check restores the backup into a scratch folder, opens it with Dagster and MLflow, and counts what it holds: a
backup that was never restored is a hope.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from slipway.assets.datasets.documents import held_out, takedowns
from slipway.assets.execution import pods
from slipway.recipes.load import recipes_folder
from slipway.resources import metadata_backup, postgresql
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.trainer.base import listing, scratch
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, Tier

KEY = dg.AssetKey(["platform", "metadata_backup"])
CHECK = "restores"


class BackupConfig(dg.Config):
    last: int = 7
    """How many backups stay."""


def tier_of(tiers: Tiers) -> Tier:
    """The backup tier, or where there is none the durable one."""
    shared = tiers.shared()
    return shared.get(BACKUP, shared[DURABLE])


@dg.asset(
    key=KEY,
    group_name="platform",
    kinds={"database"},
    op_tags=pods.tags("metadata_backup"),
    owners=["team:platform"],
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=KEY,
            description="Restored into an empty folder, it opens in Dagster and MLflow and holds what was counted.",
        )
    ],
    description="The databases, the recipes, takedowns and tokenizers, verified, on the backup tier.",
)
def backup_of_metadata(
    context: dg.AssetExecutionContext, config: BackupConfig, tiers: Tiers, tracking: Tracking
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    tier = tier_of(tiers)
    backup = back_up(context.instance, tiers, tracking, recipes_folder())
    removed = metadata_backup.prune(tier, config.last, backup.folder)
    yield dg.MaterializeResult(
        metadata={"folder": backup.folder, "bytes": backup.bytes, "removed": len(removed), **vars(backup.figures)},
        data_version=dg.DataVersion(backup.manifest),
    )
    yield _drill(backup, tier)


def back_up(instance: dg.DagsterInstance, tiers: Tiers, tracking: Tracking, recipes: Path) -> metadata_backup.Backup:
    """Put a new backup on its tier. Raises as `slipway.resources.metadata_backup.back_up` does."""
    figures = metadata_backup.count(instance, tracking, recipes)
    records = list(records_of(tiers.durable_path))
    if postgresql.serves(instance):
        return metadata_backup.back_up_servers(recipes, figures, tier_of(tiers), time.time(), records)
    home = Path(instance.root_directory)
    return metadata_backup.back_up(home, tracking, recipes, figures, tier_of(tiers), time.time(), records)


def records_of(durable: Path) -> Iterator[tuple[str, Path]]:
    """What of the datasets no source can give again: what was taken down, what a small one holds out, and the
    tokenizers. Raises OSError."""
    for dataset in listing.names_if_there(durable / "datasets"):
        for path in (takedowns.path(durable, dataset), held_out.path(durable, dataset)):
            if path.exists():
                yield str(path.relative_to(durable)), path
    for name in listing.names_if_there(durable / "tokenizers"):
        yield f"tokenizers/{name}", durable / "tokenizers" / name


def _drill(backup: metadata_backup.Backup, tier: Tier) -> dg.AssetCheckResult:
    begun = time.time()
    with scratch.folder("slipway-backup-drill") as folder:
        try:
            figures = metadata_backup.restore(tier, backup.folder, backup.manifest, folder / "home")
        except (DamagedCheckpoint, ValueError) as error:
            return dg.AssetCheckResult(check_name=CHECK, passed=False, description=str(error))
    return dg.AssetCheckResult(
        check_name=CHECK, passed=True, metadata={**vars(figures), "seconds": round(time.time() - begun, 3)}
    )


job = dg.define_asset_job(
    "metadata_backup",
    dg.AssetSelection.assets(KEY),
    description="Backs the metadata up, and restores the backup.",
)
schedule = dg.ScheduleDefinition(
    name="metadata_backup_schedule",
    cron_schedule="0 4 * * *",
    job=job,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each night at 04:00.",
)
