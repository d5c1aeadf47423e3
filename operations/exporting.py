"""Exporting in the UI: a job of each recipe that writes a checkpoint in the Hugging Face layout.

The launchpad offers the checkpoints as partitions, and the types of the weights; the export lies on the durable tier,
under the name of its checkpoint. `slipway checkpoints export` writes to any folder.
"""

import enum
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.assets.exporting import Exporting
from slipway.operations.job_config import about
from slipway.recipes.training import ModelRecipe
from slipway.resources import exports
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.branching import commit_at
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable


class WeightType(enum.Enum):
    """The type of the weights."""

    bf16 = "bf16"
    fp32 = "fp32"


class ExportConfig(dg.Config):
    """How a checkpoint is written."""

    precision: WeightType = Field(default=WeightType.bf16, description="The type of the weights")
    file_gigabytes: float = Field(default=5.0, gt=0, description="The largest size of a weight file, in 10^9 bytes")


def export_job(recipe: ModelRecipe) -> dg.JobDefinition:
    """The job that exports a checkpoint of the recipe's trainings."""
    lane = keys.lane(recipe.name)

    @dg.op(name=f"{lane}_export_checkpoint", tags=pods.tags("model"))
    def export_checkpoint(
        context: dg.OpExecutionContext, config: ExportConfig, tiers: Tiers, compute: Compute
    ) -> dg.Output[None]:
        """Raises Failure with the reason where it cannot be written; one that is there already is kept."""
        training, step = keys.parse_checkpoint_partition(about(context, "checkpoint"))
        store = all_trainings(tiers).store(training)
        target = tiers.durable_path / exports.EXPORTS / f"{training}.{step}-{config.precision.value}"
        exporting = Exporting(tiers, compute, context.log.info)
        try:
            commit = commit_at(store, step)
            if not exports.wanted_now(target):
                exporting.write(
                    commit, store.run_policy(), target, None, config.precision.value, int(config.file_gigabytes * 1e9)
                )
        except (ValueError, DamagedCheckpoint, TierUnavailable) as error:
            raise dg.Failure(f"checkpoint {training}@{step}: {error}") from None
        return dg.Output(None, metadata=_metadata(training, step, target))

    @dg.job(
        name=f"{lane}_export",
        partitions_def=keys.checkpoint_partitions(recipe.name),
        description="Writes a checkpoint (the partition) in the Hugging Face layout, on the durable tier.",
    )
    def job() -> None:
        export_checkpoint()

    return job


def _metadata(training: str, step: int, target: Path) -> dict[str, Any]:
    files = sorted(path for path in target.iterdir() if path.is_file())
    return {
        "checkpoint": f"{training}@{step}",
        "export": dg.MetadataValue.path(str(target)),
        "files": ", ".join(path.name for path in files),
        "bytes": sum(path.stat().st_size for path in files),
    }
