"""Metadata backup: Dagster's and MLflow's databases and the recipes on the backup tier, and a drill of their restore.

The check restores the newest backup into a scratch folder and opens it with Dagster, MLflow and the recipes' own
reader: a backup that was never restored is a hope.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets import pods
from recipes.load import recipes_folder
from resources import metadata_backup
from resources.tiers import Tiers
from resources.tracking import Tracking
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.interval import BACKUP, DURABLE
from trainer.checkpoint.tiers import Tier

KEY = dg.AssetKey(["platform", "metadata_backup"])
CHECK = "restores"


class Keep(dg.Config):
    last: int = 7
    """How many backups stay."""


def tier_of(tiers: Tiers) -> Tier:
    """The backup tier, or where there is none the durable one."""
    shared = tiers.shared()
    return shared.get(BACKUP, shared[DURABLE])


@dg.asset(
    key=KEY,
    group_name="platform",
    kinds={"sqlite"},
    op_tags=pods.tags("metadata_backup"),
    owners=["team:platform"],
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=KEY,
            description="Restored into an empty folder, it opens in Dagster and MLflow and holds what was counted.",
        )
    ],
    description="Dagster's and MLflow's SQLite databases and the recipes, verified, on the backup tier.",
)
def backup_of_metadata(
    context: dg.AssetExecutionContext, config: Keep, tiers: Tiers, tracking: Tracking
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    tier, recipes = tier_of(tiers), recipes_folder()
    figures = metadata_backup.count(context.instance, tracking, recipes)
    home = Path(context.instance.root_directory)
    made = metadata_backup.back_up(home, tracking, recipes, figures, tier, time.time())
    removed = metadata_backup.prune(tier, config.last)
    yield dg.MaterializeResult(
        metadata={"folder": made.folder, "bytes": made.bytes, "removed": len(removed), **vars(figures)},
        data_version=dg.DataVersion(made.manifest),
    )
    yield _drill(made, tier)


def _drill(made: metadata_backup.Backup, tier: Tier) -> dg.AssetCheckResult:
    begun = time.time()
    with tempfile.TemporaryDirectory(prefix="metadata-drill-") as scratch:
        try:
            found = metadata_backup.restore(tier, made.folder, made.manifest, Path(scratch, "home"))
        except (Damaged, ValueError) as error:
            return dg.AssetCheckResult(check_name=CHECK, passed=False, description=str(error))
    return dg.AssetCheckResult(
        check_name=CHECK, passed=True, metadata={**vars(found), "seconds": round(time.time() - begun, 3)}
    )
