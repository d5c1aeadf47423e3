"""Restore drill: a recent checkpoint of each tier is really restored, and its loss compared with the recorded one.

It is brought from the tier to a scratch folder, verified byte by byte on the way, loaded by the evaluator in a
process of its own, and measured on the split that its evaluation used. An asset check on the checkpoint says how it
went, for each tier.
"""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets import keys, pods
from assets.evaluation import measure, score_of
from recipes.schema import Training
from resources.compute import Compute, trainings
from resources.tiers import Tiers
from resources.training_store import TrainingStore
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.interval import NVME, TIERS
from trainer.checkpoint.tiers import Nodes, Source, Unavailable, fetch
from trainer.fence import Commit
from trainer.scores import Score

TOLERANCE = 1e-3
"""Of the loss: another device adds up in another order, and other weights are further off."""


def check_name(tier: str) -> str:
    return f"restores_from_{tier}"


def restore_checks(recipe: Training) -> list[dg.AssetChecksDefinition]:
    """The drills of one lane, one for each tier."""
    return [_check(recipe, tier) for tier in TIERS]


def _check(recipe: Training, tier: str) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=keys.key(recipe.name, "checkpoint"),
        name=check_name(tier),
        op_tags=pods.tags("restore_drill"),
        description=f"A recent checkpoint, restored from the {tier} tier, has the loss that is on record.",
    )
    def drill(tiers: Tiers, compute: Compute) -> dg.AssetCheckResult:
        source = source_of(tier, tiers, compute)
        recent = newest(recipe.name, tier, tiers) if source else None
        if source is None or recent is None:
            note = _no_source(tier, compute) if source is None else "it holds no evaluated checkpoint yet"
            return dg.AssetCheckResult(passed=True, metadata={"note": note})
        return _drilled(*recent, source, tiers)

    return drill


def source_of(tier: str, tiers: Tiers, compute: Compute) -> Source | None:
    """Where a tier's checkpoints are read; None for a tier that there is not, or that cannot be seen from here."""
    if tier == NVME and compute.sees_nodes:
        folders = [tiers.nvme_path(node.name) for node in compute.fleet().nodes()]
        there = [folder for folder in folders if (folder / "checkpoints").is_dir()]
        return Nodes(there) if there else None
    return tiers.shared().get(tier)


def _no_source(tier: str, compute: Compute) -> str:
    """Why a drill has nothing to read; what lies on a node's disk is verified by the trainer that restores from it."""
    seen = tier != NVME or compute.sees_nodes
    return "there is no such tier here" if seen else "the nodes' disks can be seen on the nodes alone"


def newest(recipe: str, tier: str, tiers: Tiers) -> tuple[TrainingStore, Commit, Score] | None:
    """The newest checkpoint of a recipe that a tier holds and that has been evaluated."""

    def evaluated() -> Iterator[tuple[TrainingStore, Commit, Score]]:
        known = trainings(tiers)
        for store in map(known.store, known.known()):
            if store.specification().recipe == recipe:
                scored = ((commit, score_of(store, commit)) for commit in store.commits(tier))
                yield from ((store, commit, score) for commit, score in scored if score is not None)

    return max(evaluated(), key=lambda found: found[1].at, default=None)


def _drilled(
    store: TrainingStore, commit: Commit, recorded: Score, source: Source, tiers: Tiers
) -> dg.AssetCheckResult:
    """Restore one checkpoint and compare."""
    begun = time.time()
    told: dict[str, str | int | float] = {"training": store.id, "step": commit.step, "recorded_loss": recorded.loss}
    with tempfile.TemporaryDirectory(prefix="restore-drill-") as scratch:
        try:
            fetch(source, commit.folder, commit.manifest, Path(scratch, commit.folder))
        except (Damaged, Unavailable) as error:
            return dg.AssetCheckResult(passed=False, description=str(error), metadata=told)
        told["seconds_to_fetch"] = time.time() - begun
        [found] = measure(store.specification().snapshot, [commit], tiers, Path(scratch))
    if found.damaged:
        return dg.AssetCheckResult(passed=False, description=found.damaged, metadata=told)
    told |= {"loss": found.loss, "seconds": time.time() - begun}
    off = abs(found.loss - recorded.loss) / recorded.loss
    said = f"the loss is {found.loss:.6f}, and {recorded.loss:.6f} is on record"
    return dg.AssetCheckResult(passed=off <= TOLERANCE, description=said, metadata=told)
