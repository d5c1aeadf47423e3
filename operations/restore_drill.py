"""Restore drill: each night, restores a recent checkpoint from each tier, and compares its loss with the recorded one.

The drill copies the checkpoint from the tier to a scratch folder, verifies every byte on the way, loads it with the
evaluator, and measures it on the split that its evaluation used: in a process of its own, or by a job on as many ranks
as its evaluation takes (`slipway.assets.measurement`). An asset check on the checkpoint has the result, one for each
tier.
"""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import dagster as dg

from slipway.assets import keys
from slipway.assets.execution import pods
from slipway.assets.measurement import MeasuredSource, Measuring, in_a_run
from slipway.assets.promotion.evaluation import score_of
from slipway.operations import for_each_training
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.protocol import Compute
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.store import all_trainings
from slipway.trainer.base import paths
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME, TIERS, TierUnavailable
from slipway.trainer.record.fence import Commit
from slipway.trainer.record.scores import Score

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

NAME = "restore_drill"
TOLERANCE = 1e-3
"""Of the loss, relative: another device adds up in another order; other weights differ by more."""


def check_name(tier: str) -> str:
    return f"restores_from_{tier}"


def restore_checks(recipe: ModelRecipe) -> list[dg.AssetChecksDefinition]:
    """The drills of one lane, one for each tier."""
    return [_check(recipe, tier) for tier in TIERS]


def _check(recipe: ModelRecipe, tier: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=keys.key(recipe.name, "checkpoint"),
        name=check_name(tier),
        op_tags=pods.tags("restore_drill", recipe.placement.steps.get("restore_drill")),
        description=f"A recent checkpoint, restored from the {tier} tier, has the loss that is on record.",
    )
    def drill(context: dg.AssetCheckExecutionContext, tiers: Tiers, compute: Compute) -> dg.AssetCheckResult:
        source = source_of(tier, tiers, compute)
        recent = newest(context, recipe.name, tier, tiers) if source else None
        if source is None or recent is None:
            note = _no_source(tier, compute) if source is None else "it holds no evaluated checkpoint yet"
            return dg.AssetCheckResult(passed=True, metadata={"note": note})
        return _drilled(*recent, source, in_a_run(context, tiers, compute))

    return drill


def source_of(tier: str, tiers: Tiers, compute: Compute) -> MeasuredSource | None:
    """Where a tier's checkpoints are read; None for a tier that there is not, or that cannot be seen from here."""
    if tier == NVME and compute.sees_nodes:
        folders = [tiers.nvme_path(node.name) for node in compute.fleet().nodes()]
        there = [str(folder) for folder in folders if (folder / paths.CHECKPOINTS).is_dir()]
        return MeasuredSource(there) if there else None
    locations = {DURABLE: tiers.durable, BACKUP: tiers.backup}
    return MeasuredSource([locations[tier]]) if locations.get(tier) else None


def _no_source(tier: str, compute: Compute) -> str:
    """Why a drill has nothing to read; what lies on a node's disk is verified by the trainer that restores from it."""
    is_visible = tier != NVME or compute.sees_nodes
    return "there is no such tier here" if is_visible else "the nodes' disks can be seen on the nodes alone"


def newest(
    context: for_each_training.Context, recipe: str, tier: str, tiers: Tiers
) -> tuple[TrainingFacts, Commit, Score] | None:
    """The newest checkpoint of a recipe that a tier holds and that has been evaluated."""
    candidates: list[tuple[TrainingFacts, Commit, Score]] = []

    def add(facts: TrainingFacts) -> None:
        if facts.specification.recipe == recipe:
            scored = ((commit, score_of(facts, commit)) for commit in facts.commits_on(tier))
            candidates.extend((facts, commit, score) for commit, score in scored if score is not None)

    for_each_training.apply(context, all_trainings(tiers).stores(), add)
    return max(candidates, key=lambda candidate: candidate[1].at, default=None)


def _drilled(
    facts: TrainingFacts, commit: Commit, recorded: Score, source: MeasuredSource, measuring: Measuring
) -> dg.AssetCheckResult:
    """Restore one checkpoint and compare. A second drill of the same day adopts the job of the first."""
    begun = time.time()
    today = time.strftime("%Y-%m-%d", time.gmtime())
    figures: dict[str, str | int | float] = {"training": facts.id, "step": commit.step, "recorded_loss": recorded.loss}
    try:
        measurement = measuring.measure_restored(facts.specification.snapshot, commit, facts.run_policy, source, today)
    except (DamagedCheckpoint, TierUnavailable) as error:
        return dg.AssetCheckResult(passed=False, description=str(error), metadata=figures)
    if measurement.damaged:
        return dg.AssetCheckResult(passed=False, description=measurement.damaged, metadata=figures)
    figures |= {"loss": measurement.loss, "seconds": time.time() - begun}
    off = abs(measurement.loss - recorded.loss) / recorded.loss
    sentence = f"the loss is {measurement.loss:.6f}, and {recorded.loss:.6f} is on record"
    return dg.AssetCheckResult(passed=off <= TOLERANCE, description=sentence, metadata=figures)


def job(recipes: Iterable[str]) -> "UnresolvedAssetJobDefinition":
    """The job of all drills of these recipes."""
    checks = [
        dg.AssetCheckKey(keys.key(recipe, "checkpoint"), check_name(tier)) for recipe in recipes for tier in TIERS
    ]
    return dg.define_asset_job(
        NAME,
        dg.AssetSelection.checks(*checks),
        description="Restores a recent checkpoint from each tier and compares its loss.",
    )


schedule = dg.ScheduleDefinition(
    name="restore_drill_schedule",
    cron_schedule="30 4 * * *",
    job_name=NAME,
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Each night at 04:30.",
)
