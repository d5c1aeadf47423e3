"""Updates: what a person changes in a training that exists, in place where a running one can take it over.

A field of `changing.IN_PLACE` is heard by the ranks between two steps. A term that the control plane reads at every
decision holds at once; any other term from the next incarnation on. What remains decides the training's numbers: it is
refused, as it is another training, which `slipway branch` starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.records import AT_ONCE, RunPolicy, policy_changes
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import changing
from slipway.trainer.config.resolved import OPERATION, SECTIONS
from slipway.trainer.record import changes as recorded
from slipway.trainer.record.changes import AppliedChange, ChangeRecord
from slipway.trainer.step import schedule

REMEDY = "`slipway branch` starts another training with it"
IN_PLACE, NEXT_START = "in place, between two steps", "when the next incarnation starts"


@dataclass(frozen=True)
class FieldUpdate:
    """One field of a training that was set."""

    field: str
    old: Any
    new: Any
    takes_effect: str
    means: str = ""
    """What follows from it, where that is not plain; for a training that runs, as of the step that it is known to be
    at."""


@dataclass(frozen=True)
class KnownChange:
    """A change of a running training, and what became of it."""

    number: int
    fields: Mapping[str, Any]
    by: str
    why: str
    at: float
    applied: AppliedChange | None
    """None while no start has taken it over."""
    after: int = 0
    """The step after which it is to hold at the earliest."""

    @property
    def state(self) -> str:
        if self.applied is None:
            return f"it waits for step {self.after}" if self.after else "it waits for the next step"
        if self.applied.refused:
            return f"refused: {self.applied.refused}"
        return f"since step {self.applied.step + 1}"

    @property
    def pairs(self) -> dict[str, tuple[Any, Any]]:
        """By field, its value before and its value since; the former is unknown while the change waits."""
        changed = self.applied.changed if self.applied else {}
        return {name: changed.get(name, (None, value)) for name, value in self.fields.items()}


def update(
    store: TrainingStore, changes: Mapping[str, Any], run_policy: RunPolicy, by: str, why: str
) -> list[FieldUpdate]:
    """Set these fields of a training; `run_policy` is its policy with them. Returns each, with when it takes effect.

    Raises ValueError, before anything is written, for a training that has succeeded, and for what cannot be changed.
    """
    facts = store.read()
    if facts.succeeded:
        again = f"slipway branch {store.id}@STEP"
        raise ValueError(f"training {store.id}: it has succeeded; to continue it otherwise: {again}")
    before = sections_now(facts)
    before_policy = facts.run_policy
    script = facts.specification.script is not None
    check(changes, before, script)
    in_place = {name: value for name, value in changes.items() if name in changing.IN_PLACE and not script}
    if "run.steps" in changes and not script:
        local = changing.value_of(before, "communication.local_steps") or 1
        _check_steps(changes["run.steps"], _done(facts), local)
    updates = []
    for name, value in changes.items():
        meaning = means(facts, before, changes) if name == "run.steps" and not script else ""
        updates.append(FieldUpdate(name, changing.value_of(before, name), value, effect(name, script), meaning))
    if policy_changes(before_policy, run_policy):
        store.change_run_policy(run_policy, by, why)
    if in_place:
        recorded.propose(store.folder, in_place, by, why)
    return updates


def check(changes: Mapping[str, Any], before: Mapping[str, Any], script: bool = False) -> None:
    """Raises ValueError for the first field that a training which exists cannot change."""
    for name, value in changes.items():
        section = name.split(".")[0]
        if section in ("placement", "recovery"):
            continue
        if script:
            raise ValueError(
                f"{name}: found {value!r}, expected one of placement or recovery: the rest is the script's"
            )
        if name not in changing.IN_PLACE and section not in OPERATION:
            why = changing.FIXED.get(name) or changing.FIXED.get(section) or "it decides the training's numbers"
            raise ValueError(f"{name}: found {value!r}, expected no change: {why}; {REMEDY}")
        if name == "validation.every" and not changing.value_of(before, name) and value:
            raise ValueError(f"{name}: found {value!r}, expected 0: it holds no shards for a validation; {REMEDY}")
    own = {name: value for name, value in changes.items() if name in changing.IN_PLACE}
    try:
        changing.with_fields(before, own)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None


def effect(name: str, script: bool = False) -> str:
    """When a change of this field takes effect; a script hears of none while it runs."""
    if name in changing.IN_PLACE and not script:
        return IN_PLACE
    return "at once" if name.removeprefix("recovery.") in AT_ONCE else NEXT_START


def means(facts: TrainingFacts, before: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """What changes, with another number of steps among them, do to the learning rate."""
    after = changing.with_fields(
        before, {name: field_value for name, field_value in changes.items() if name in changing.IN_PLACE}
    )
    then, now = (
        (codec.build(SECTIONS["optimiser"], sections["optimiser"], "optimiser"), int(sections["run"]["steps"]))
        for sections in (before, after)
    )
    return schedule.consequence(then, now, _done(facts))


def steps_now(facts: TrainingFacts) -> int | None:
    """How many steps it has in all, with what was changed; None for a script, whose steps are its own."""
    steps: int | None = facts.specification.identity_config.get("run", {}).get("steps")
    for change in known(facts.folder) if steps is not None else ():
        if "run.steps" in change.fields and not (change.applied and change.applied.refused):
            steps = int(change.fields["run.steps"])
    return steps


def _done(facts: TrainingFacts) -> int:
    """The step that it is known to have done."""
    return max((0, *(beat.step for beat in facts.beats), *(commit.step for commit in facts.commits)))


def _check_steps(steps: Any, done: int, local_steps: int) -> None:
    try:
        changing.check_steps(steps, done, local_steps)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}; {REMEDY}") from None


def sections_now(facts: TrainingFacts) -> dict[str, Any]:
    """The sections of a training's configuration as they are with all that was asked for."""
    sections = {**facts.run_policy.operation, **facts.specification.identity_config}
    values = [change.fields for change in known(facts.folder) if not (change.applied and change.applied.refused)]
    numbers = {name: value for fields in values for name, value in fields.items() if name.split(".")[0] in SECTIONS}
    return changing.with_fields(sections, numbers) if numbers else sections


def known(folder: Any) -> list[KnownChange]:
    """All changes of a training, by number. Raises Unreadable."""
    applied = recorded.applied(folder)
    changes = [recorded.read(folder, number) for number in recorded.numbers(folder)]
    return [_known(change, applied.get(change.number)) for change in changes]


def _known(change: ChangeRecord, applied: AppliedChange | None) -> KnownChange:
    return KnownChange(change.number, change.fields, change.by, change.why, change.at, applied, change.after)
