"""Checkpoint faults: what happened to the checkpoints of a training that a person should see, with what to do."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base import listing
from slipway.trainer.checkpoint.tiers import faults
from slipway.trainer.record import fence, files

NOTHING = "nothing: the training and its other checkpoints are not touched by it"


@dataclass(frozen=True)
class CheckpointFault:
    """One thing that happened to one checkpoint."""

    id: str
    """Names it for ever: a fault is reported once for each id."""
    commit: str
    what: str
    reason: str
    what_to_do: str
    tier: str = ""
    """Empty where it is about the checkpoint on all tiers."""

    @property
    def step(self) -> int:
        return int(self.commit.partition(".")[0])


def known(facts: TrainingFacts) -> list[CheckpointFault]:
    """The faults of copies, and the releases. Raises OSError."""
    found = [_of_copy(facts, fault) for fault in faults.noted(facts.folder)]
    return found + [
        CheckpointFault(name, name.partition(".release.")[0], "released", "it was set aside, and is whole", NOTHING)
        for name in _releases(facts)
    ]


def of_gone(facts: TrainingFacts, steps: Iterable[int]) -> dict[int, CheckpointFault]:
    """Why no valid checkpoint of these steps is on a tier that nodes share. Raises OSError and ValueError."""
    wanted = set(steps)
    if not wanted:
        return {}
    newest = {int(name.partition(".")[0]): name for name in files.names(facts.folder, files.COMMITS)}
    aside, pruned = fence.set_aside_reasons(facts.folder), set(fence.pruned(facts.folder))
    valid = set(fence.names_under(facts.folder, facts.claim))
    return {step: _of_gone(facts, step, newest.get(step), aside, pruned | valid) for step in wanted}


def _of_gone(
    facts: TrainingFacts, step: int, committed: str | None, aside: Mapping[str, str], kept: Container[str]
) -> CheckpointFault:
    """Why one is not: from the name of its newest commit, what was set aside, and what was pruned or is valid."""
    name = committed or f"{step:09d}"
    ask = f"slipway checkpoints release {facts.id}@{step} takes it back, once every byte of a copy verifies"
    if name in aside:
        number = sum(each.startswith(f"{name}.") for each in _releases(facts))
        return CheckpointFault(f"{name}.set-aside.{number}", name, "set aside", aside[name], ask)
    if name in kept:
        reason = "no rule of retention keeps it on a tier that outlives the nodes, and nothing refers to it"
        return CheckpointFault(f"{name}.pruned", name, "removed", reason, "to keep more, see the recipe's `storage`")
    if committed is None:
        return CheckpointFault(f"{name}.lost", name, "lost", "its record is gone", "look at the training's folder")
    reason = "it was committed after a newer start had listed what counts"
    return CheckpointFault(f"{name}.superseded", name, "superseded", reason, NOTHING)


def _of_copy(facts: TrainingFacts, fault: faults.CopyFault) -> CheckpointFault:
    step = int(fault.commit.partition(".")[0])
    verify = f"slipway checkpoints verify {facts.id}@{step} --tier {fault.tier}"
    advice = {
        faults.DAMAGED: f"look at the tier's disk: the bytes stay for inspection; {verify} reads them again",
        faults.AWAY: f"look whether the {fault.tier} tier is mounted and can be read; nothing was set aside",
        faults.NOT_COPIED: f"look at the {fault.tier} tier; the next checkpoint is copied again, and the last one of a "
        "training by the hourly retention, once the tier answers",
    }
    what = {faults.DAMAGED: "damaged copy", faults.AWAY: "tier away", faults.NOT_COPIED: "not copied"}
    todo = advice.get(fault.kind, NOTHING)
    return CheckpointFault(
        f"{fault.name}.{fault.at:.3f}", fault.commit, what.get(fault.kind, fault.kind), fault.reason, todo, fault.tier
    )


def _releases(facts: TrainingFacts) -> list[str]:
    return [name for name in listing.names_if_there(facts.folder / files.TAKEN_BACK, ".json") if ".release." in name]
