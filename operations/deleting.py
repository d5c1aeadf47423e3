"""Deleting a training: what of it goes, what stays and why; and the record by which the retention removes it.

No byte is removed here. The hourly retention does that, through the one door for it: what a model, a branch or a reader
refers to stays. The ledger and the incidents of a training are its history, and always stay.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.operations.checkpoint_retention import reasons_to_stay
from slipway.operations.references import ReferenceReader
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.checkpoint.tiers.tier import DURABLE


@dataclass(frozen=True)
class DeletionOutlook:
    """What deleting a training removes."""

    training: str
    going: Mapping[int, tuple[str, ...]]
    """The steps of the checkpoints that go, with the tiers that hold them."""
    durable_bytes: int
    """What these take on the durable tier."""
    staying: Mapping[int, tuple[str, ...]]
    """The steps of the checkpoints that stay, with what refers to them."""

    def sentence(self) -> str:
        """For a person."""
        going = f"checkpoints of {_steps(self.going)} go ({self.durable_bytes / 1e6:,.1f} MB on the durable tier)"
        by_reason: dict[tuple[str, ...], list[int]] = {}
        for step, why in self.staying.items():
            by_reason.setdefault(why, []).append(step)
        staying = [
            f"{'the one' if len(steps) == 1 else 'those'} of {_steps(steps)} {'stays' if len(steps) == 1 else 'stay'}: "
            f"{'; '.join(why)}"
            for why, steps in by_reason.items()
        ]
        return "; ".join([going if self.going else "no checkpoint goes", *staying, "its ledger stays"])


def outlook(root: Trainings, store: TrainingStore, tiers: Tiers, tracking: Tracking) -> DeletionOutlook:
    """What deleting a training would remove now.

    Raises ValueError for a training that has not ended, OSError and ValueError for records that cannot be read, and
    MlflowException when the registry, which may refer to checkpoints, is away.
    """
    facts = store.read()
    if facts.claim is None:
        raise ValueError(f"training {store.id}: it was never started: there is nothing to delete")
    if not facts.over:
        raise ValueError(f"training {store.id}: found it under way, expected one that has ended: stop it first")
    registry = Registry(tracking, tiers.durable_path) if tracking.is_there else None
    known = ReferenceReader(tiers, registry).read()
    reasons = reasons_to_stay(facts, root, known)
    going = [commit for commit in facts.commits if not reasons.get(commit.name)]
    durable_commits = [commit for commit in going if DURABLE in facts.holders[commit.name]]
    return DeletionOutlook(
        store.id,
        {commit.step: facts.holders[commit.name] for commit in going},
        sum(_size(tiers.durable_path / commit.folder) for commit in durable_commits),
        {commit.step: tuple(reasons[commit.name]) for commit in facts.commits if reasons.get(commit.name)},
    )


def delete(
    root: Trainings, store: TrainingStore, tiers: Tiers, tracking: Tracking, actor: str, reason: str
) -> DeletionOutlook:
    """Let the checkpoints of a training go; the next retention removes those that nothing refers to then.

    Whoever wants the training to run again before that keeps them. Raises as `outlook` does.
    """
    deletion = outlook(root, store, tiers, tracking)
    store.let_checkpoints_go(actor, reason)
    return deletion


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _steps(steps: Collection[int]) -> str:
    named = ", ".join(map(str, sorted(steps)))
    return f"step {named}" if len(steps) == 1 else f"steps {named}"
