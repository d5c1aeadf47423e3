"""Updates: a person changes an existing training, in place if a running training can accept the change.

The ranks apply a field of `changing.IN_PLACE` between two steps. A field of the run policy that the control plane reads
at every decision applies at once; other fields of the policy apply from the next incarnation on. All remaining fields
determine what is computed: changing them is rejected, since that is another training, which `slipway branch` starts.
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
IN_PLACE = "in place, between two steps"
NEXT_START = "when the next incarnation starts"


@dataclass(frozen=True)
class FieldUpdate:
    """One changed field of a training."""

    field: str
    old: Any
    new: Any
    takes_effect: str
    means: str = ""
    """The consequence of the change, if it is not obvious; for a running training, at its last known step."""


@dataclass(frozen=True)
class KnownChange:
    """A change of a running training, and its result."""

    number: int
    fields: Mapping[str, Any]
    by: str
    why: str
    at: float
    applied: AppliedChange | None
    """None while no incarnation has applied it."""
    after: int = 0
    """The step after which it applies at the earliest."""

    @property
    def state(self) -> str:
        if self.applied is None:
            return f"it waits for step {self.after}" if self.after else "it waits for the next step"
        if self.applied.refused:
            return f"rejected: {self.applied.refused}"
        return f"since step {self.applied.step + 1}"

    @property
    def pairs(self) -> dict[str, tuple[Any, Any]]:
        """The old and the new value of each field; the old one is None while the change waits."""
        changed = self.applied.changed if self.applied else {}
        return {name: changed.get(name, (None, value)) for name, value in self.fields.items()}


def update(
    store: TrainingStore, changes: Mapping[str, Any], run_policy: RunPolicy, by: str, why: str
) -> list[FieldUpdate]:
    """Change fields of a training; `run_policy` is its policy with the changes. Returns when each takes effect.

    Raises ValueError, before anything is written, if the training has succeeded or a field cannot be changed.
    """
    facts = store.read()
    if facts.succeeded:
        again = f"slipway branch {store.id}@STEP"
        raise ValueError(f"training {store.id}: it has succeeded; to continue it with changes, use {again}")
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
    """Raises ValueError for the first field that an existing training cannot change."""
    for name, value in changes.items():
        section = name.split(".")[0]
        if section in ("placement", "recovery"):
            continue
        if script:
            raise ValueError(
                f"{name}: found {value!r}, expected a field of placement or recovery: the script sets all others"
            )
        if name not in changing.IN_PLACE and section not in OPERATION:
            why = changing.FIXED.get(name) or changing.FIXED.get(section) or "it determines what is computed"
            raise ValueError(f"{name}: found {value!r}, expected no change: {why}; {REMEDY}")
        if name == "validation.every" and not changing.value_of(before, name) and value:
            raise ValueError(f"{name}: found {value!r}, expected 0: it has no shards for a validation; {REMEDY}")
    own = {name: value for name, value in changes.items() if name in changing.IN_PLACE}
    try:
        changing.with_fields(before, own)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}") from None


def effect(name: str, script: bool = False) -> str:
    """When a change of this field takes effect. A running script never receives changes."""
    if name in changing.IN_PLACE and not script:
        return IN_PLACE
    return "at once" if name.removeprefix("recovery.") in AT_ONCE else NEXT_START


def means(facts: TrainingFacts, before: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """The consequence for the learning rate of changes that include the number of steps."""
    after = changing.with_fields(
        before, {name: field_value for name, field_value in changes.items() if name in changing.IN_PLACE}
    )
    then, now = (
        (codec.build(SECTIONS["optimizer"], sections["optimizer"], "optimizer"), int(sections["run"]["steps"]))
        for sections in (before, after)
    )
    return schedule.consequence(then, now, _done(facts))


def steps_now(facts: TrainingFacts) -> int | None:
    """The number of its last step, with all changes; None for a script, since only the script knows it."""
    steps: int | None = facts.specification.identity_config.get("run", {}).get("steps")
    if steps is None:
        return None
    for change in known(facts.folder):
        if "run.steps" in change.fields and not (change.applied and change.applied.refused):
            steps = int(change.fields["run.steps"])
    return steps


def _done(facts: TrainingFacts) -> int:
    """The last step that it is known to have completed."""
    return max((0, *(beat.step for beat in facts.beats), *(commit.step for commit in facts.commits)))


def _check_steps(steps: Any, done: int, local_steps: int) -> None:
    try:
        changing.check_steps(steps, done, local_steps)
    except Invalid as fault:
        raise ValueError(f"{fault.field}: {fault}; {REMEDY}") from None


def sections_now(facts: TrainingFacts) -> dict[str, Any]:
    """The sections of a training's configuration with all changes that were not rejected."""
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
