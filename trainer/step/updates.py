"""Hot updates: changes that a training takes over while it runs, by all ranks after the same step.

Rank 0 looks for new changes in the store from a thread, so that no step waits for a disk. It adds the number of the
next one to the numbers that the ranks sum in every step anyway: all of them learn of it after the same step. Only then
do they wait once, for rank 0's record that the change holds from here (`slipway.trainer.record.changes`) and for its
content.

A start that comes back to an earlier checkpoint begins with the configuration of its file, takes over what the
checkpoint had, and then each later change after the step that is on record.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slipway.trainer.base import console
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import changing, resolved
from slipway.trainer.config.resolved import Config
from slipway.trainer.node.world import World
from slipway.trainer.record import changes
from slipway.trainer.record.changes import AppliedChange, ChangeRecord
from slipway.trainer.record.fence import Token
from slipway.trainer.step import optimisers, schedule
from slipway.trainer.step.engine import Engine

LOOK_SECONDS = 1.0
"""Between two looks for new changes."""
LINEAGE = "changes"
"""In the lineage of a checkpoint: [number, step, new values] of each change that it has."""


@dataclass(frozen=True)
class _Course:
    """The changes of one start, as rank 0 reads them for all ranks."""

    had: tuple[tuple[int, int, Mapping[str, Any]], ...] = ()
    """What the checkpoint has: the number, the step after which it holds, and the new values."""
    to_come: tuple[AppliedChange, ...] = ()
    """What is on record for the steps that follow, in their order."""
    settled: frozenset[int] = frozenset()
    """The numbers of all changes that need no further decision."""

    def without(self, fields: Collection[str]) -> "_Course":
        """The same without the changes of these fields."""

        def other_fields(values: Mapping[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in values.items() if name not in fields}

        had = tuple((number, step, other_fields(values)) for number, step, values in self.had)
        to_come = tuple(replace(change, changed=other_fields(change.changed)) for change in self.to_come)
        return _Course(had, to_come, self.settled)


class HotUpdates:
    """The changes of one incarnation on one rank."""

    def __init__(
        self, config: Config, world: World, token: Token, follow: Callable[[Config], None], tell: Callable[..., None]
    ) -> None:
        """`follow` gives this rank's parts another configuration; `tell` records an event in the ledger."""
        self._first, self._config, self._world, self._token = config, config, world, token
        self._store, self._follow, self._tell = Path(config.placement.store), follow, tell
        self._had: list[tuple[int, int, Mapping[str, Any]]] = []
        self._to_come: list[AppliedChange] = []
        self._watch: ChangeWatch | None = None
        self._next = 0
        """The step after which a change can hold now."""
        self.inherited: Mapping[str, Any] = {}
        """The lineage of the parent's checkpoint, where this start began with that."""
        self.before: Mapping[str, Any] = {}
        """The lineage of the checkpoint that this start began with, whoever's it is; empty without one."""

    def begin(self, step: int, lineage: Mapping[str, Any], own: bool = True) -> None:
        """Take over what a checkpoint of `step` with this lineage had, and what waits. All ranks call it at once.

        Of a checkpoint that is not the training's `own` there is nothing to take over: its configuration has it all.
        Raises OSError, on all ranks, when the records cannot be read.
        """
        self.inherited, self.before, self._next = {} if own else lineage, lineage, step
        settled = self.repeat(self._store, step, lineage if own else {})
        if self._world.is_rank_zero:
            self._watch = self._watch or ChangeWatch(self._store)
            self._watch.begin(settled)
        while self._world.broadcast(self.number()):
            self._agree(step)
        self._next = step + 1

    def repeat(self, store: Path, step: int, lineage: Mapping[str, Any], but: Collection[str] = ()) -> frozenset[int]:
        """Take over what a checkpoint of `step` had, and from here on what is on record in `store`, and nothing new.

        Returns the numbers of these changes; fields named in `but` stay as they are. All ranks call it at once. Raises
        OSError, on all ranks.
        """
        course: _Course = _on_all_ranks(self._world, lambda: _course(store, step, lineage).without(but))
        self._config, self._had, self._to_come = self._first, list(course.had), list(course.to_come)
        for _, _, fields in course.had:
            self._config = changing.changed(self._config, fields)
        self._follow(self._config)
        self._take_due(step)
        return course.settled

    def number(self) -> float:
        """On rank 0 the number of the change that waits; 0 without one, and on other ranks: to be summed."""
        waiting = self._watch.waiting(self._next) if self._watch and not self._to_come else None
        return float(waiting.number) if waiting else 0.0

    def after_step(self, number: float, step: int) -> None:
        """Take over what is due after `step`; `number` is what `number` gave, summed over all ranks."""
        self._take_due(step)
        if number:
            self._agree(step)
        self._next = step + 1

    def lineage(self) -> list[list[Any]]:
        """The changes that a checkpoint has now, for its lineage."""
        return [[number, step, dict(fields)] for number, step, fields in self._had]

    def close(self) -> None:
        """End the thread that looks for changes."""
        if self._watch:
            self._watch.close()

    def _take_due(self, step: int) -> None:
        while self._to_come and self._to_come[0].step <= step:
            self._take(self._to_come.pop(0), step)

    def _agree(self, step: int) -> None:
        """Take over the change that rank 0 has, once it is on record that it holds after this step."""
        agreed = _on_all_ranks(self._world, lambda: self._recorded(step))
        if agreed is not None:
            self._take(agreed, step)

    def _recorded(self, step: int) -> AppliedChange | None:
        """The change that waits, recorded; None for one that is refused or could not be recorded. Raises Superseded."""
        assert self._watch is not None
        change = self._watch.taken(step)
        applied = _judged(change, self._config, step, self._token)
        try:
            changes.record(self._store, applied)
        except OSError as error:
            console.warn(f"trainer: change {change.number} cannot be recorded: {error}")
            self._watch.give_back(change)
            return None
        if applied.refused:
            self._tell("change_refused", number=change.number, step=step, reason=applied.refused, asked_by=change.by)
            return None
        return applied

    def _take(self, change: AppliedChange, step: int) -> None:
        before, self._config = self._config, changing.changed(self._config, change.fields)
        self._had.append((change.number, change.step, change.fields))
        self._follow(self._config)
        pairs = {name: list(pair) for name, pair in change.changed.items()}
        event = {"number": change.number, "step": step, "changed": pairs, "asked_by": change.by, "why": change.why}
        if "run.steps" in change.fields:
            was, now = ((config.optimiser, config.run.steps) for config in (before, self._config))
            event["means"] = schedule.consequence(was, now, step)
        self._tell("changed", **event)


class ChangeWatch:
    """Looks for new changes in a training's store, on rank 0, in a thread of its own."""

    def __init__(self, store: Path) -> None:
        self._store, self._settled, self._lock = store, set[int](), threading.Lock()
        self._known: dict[int, ChangeRecord] = {}
        """By number, the changes that nobody has decided on."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="changes", daemon=True)

    def begin(self, settled: frozenset[int]) -> None:
        """Look now, and from now on, for changes of other numbers than these."""
        with self._lock:
            self._settled, self._known = set(settled), {}
        self._look()
        if not self._thread.ident:
            self._thread.start()

    def waiting(self, step: int) -> ChangeRecord | None:
        """The first change that nobody has decided on, of those that may hold after `step`."""
        with self._lock:
            due = [number for number, change in self._known.items() if change.after <= step]
            return self._known[min(due)] if due else None

    def taken(self, step: int) -> ChangeRecord:
        """The change that waits, which is decided on now; the next one waits from here on."""
        change = self.waiting(step)
        assert change is not None
        with self._lock:
            self._settled.add(change.number)
            del self._known[change.number]
        self._look()
        return change

    def give_back(self, change: ChangeRecord) -> None:
        """Nothing was decided: it waits again, after a while."""
        with self._lock:
            self._settled.discard(change.number)

    def close(self) -> None:
        self._over.set()
        if self._thread.ident:
            self._thread.join()

    def _keep_looking(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        """A store that cannot be read now is looked at again; a change that cannot be read is passed over."""
        with contextlib.suppress(OSError):
            for number in changes.numbers(self._store):
                with self._lock:
                    if number in self._settled or number in self._known:
                        continue
                    with contextlib.suppress(OSError, ValueError):
                        self._known[number] = changes.read(self._store, number)


def give(config: Config, engine: Engine) -> None:
    """Let an engine go on with another configuration of its optimiser; the optimiser keeps its state."""
    if config is engine.config:
        return
    engine.config = config
    fresh = optimisers.build(engine.model, config.optimiser)
    for group, new in zip(engine.optimiser.param_groups, fresh.param_groups, strict=True):
        group.update({name: value for name, value in new.items() if name not in ("params", "lr")})


def _judged(change: ChangeRecord, config: Config, step: int, token: Token) -> AppliedChange:
    """The record of a change to `config` that holds after `step`, or is refused."""
    try:
        changing.check_in_place(config, change.fields, step)
        before, after = (resolved.dump(version) for version in (config, changing.changed(config, change.fields)))
    except Invalid as fault:
        refused = f"{fault.field}: {fault}"
        return AppliedChange(change.number, step, token, {}, change.by, change.why, refused, time.time())
    pairs = {name: (changing.value_of(before, name), changing.value_of(after, name)) for name in change.fields}
    return AppliedChange(change.number, step, token, pairs, change.by, change.why, "", time.time())


def _course(store: Path, step: int, lineage: Mapping[str, Any]) -> _Course:
    """What a checkpoint of `step` had, and what is on record for later. Raises OSError.

    A record from before `step` that the checkpoint does not have is of a process that was superseded: the change waits.
    """
    had = tuple((number, at, fields) for number, at, fields in lineage.get(LINEAGE, ()))
    known = {number for number, _, _ in had}
    recorded = [change for change in changes.applied(store).values() if change.number not in known]
    to_come = [change for change in recorded if not change.refused and change.step >= step]
    settled = known | {change.number for change in recorded if change.refused} | {change.number for change in to_come}
    return _Course(had, tuple(sorted(to_come, key=lambda change: (change.step, change.number))), frozenset(settled))


def _on_all_ranks(world: World, of_leader: Callable[[], Any]) -> Any:
    """What rank 0 finds, on all ranks. Raises OSError on all of them where it cannot be read."""
    value, fault = None, ""
    if world.is_rank_zero:
        try:
            value = of_leader()
        except OSError as error:
            fault = str(error)
    value, fault = world.broadcast((value, fault))
    if fault:
        raise OSError(fault)
    return value
