"""Hot updates: changes of the configuration that all ranks apply after the same step, while the training runs.

A thread of rank 0 reads new changes from the store, so no step waits for a disk. Rank 0 adds the number of the next
change to the numbers that the ranks sum in every step anyway, so all of them learn of it after the same step. Only then
do they wait once, until rank 0 has recorded that the change holds from here (`slipway.trainer.record.changes`) and has
sent its content.

A start from an earlier checkpoint begins with the configuration of its file, applies the changes that the checkpoint
had, and then each later change after the step that is on record.
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
from slipway.trainer.step import optimizers, schedule
from slipway.trainer.step.engine import Engine

LOOK_SECONDS = 1.0
"""Between two readings of the store."""
LINEAGE = "changes"
"""In the lineage of a checkpoint: [number, step, new values] of each change that it has."""


@dataclass(frozen=True)
class _Course:
    """The changes of one start; rank 0 reads them for all ranks."""

    had: tuple[tuple[int, int, Mapping[str, Any]], ...] = ()
    """Changes that the checkpoint has: the number, the step after which it holds, and the new values."""
    to_come: tuple[AppliedChange, ...] = ()
    """Changes that are on record for the steps that follow, in their order."""
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
        self._world = world
        self._token = token
        self._store = Path(config.placement.store)
        self._follow = follow
        self._tell = tell

        # The configuration of the file, and with the changes applied so far.
        self._first = config
        self._config = config
        self._had: list[tuple[int, int, Mapping[str, Any]]] = []
        """The changes applied: the number, the step after which it holds, and the new values."""

        # Changes that are on record for later steps, and new ones.
        self._to_come: list[AppliedChange] = []
        self._watch: ChangeWatch | None = None
        """On rank 0 only."""
        self._next = 0
        """The first step after which a new change can hold."""

        # The checkpoint that this start began with.
        self.inherited: Mapping[str, Any] = {}
        """Its lineage if it was the parent's; else empty."""
        self.before: Mapping[str, Any] = {}
        """Its lineage, whether it was this training's or the parent's; empty without a checkpoint."""

    def begin(self, step: int, lineage: Mapping[str, Any], own: bool = True) -> None:
        """Apply the changes of a checkpoint of `step` with this lineage, and those that wait.

        The changes of a parent's checkpoint (not `own`) are part of this training's configuration already. All ranks
        call it at the same time. Raises OSError, on all ranks, if the records cannot be read.
        """
        self.inherited = {} if own else lineage
        self.before = lineage
        self._next = step
        settled = self.repeat(self._store, step, lineage if own else {})
        if self._world.is_rank_zero:
            self._watch = self._watch or ChangeWatch(self._store)
            self._watch.begin(settled)
        while self._world.broadcast(self.number()):
            self._agree(step)
        self._next = step + 1

    def repeat(self, store: Path, step: int, lineage: Mapping[str, Any], but: Collection[str] = ()) -> frozenset[int]:
        """Apply the changes of a checkpoint of `step` now, and those on record in `store` when their steps come.

        Returns the numbers of all changes that need no further decision; fields named in `but` stay as they are. All
        ranks call it at the same time. Raises OSError, on all ranks.
        """
        course: _Course = _on_all_ranks(self._world, lambda: _course(store, step, lineage).without(but))
        self._config = self._first
        self._had = list(course.had)
        self._to_come = list(course.to_come)
        for _, _, fields in course.had:
            self._config = changing.changed(self._config, fields)
        self._follow(self._config)
        self._take_due(step)
        return course.settled

    def number(self) -> float:
        """This rank's addend to the number of the next change: 0 on all ranks but rank 0, and if no change waits."""
        if self._watch is None or self._to_come:
            return 0.0
        waiting = self._watch.waiting(self._next)
        return float(waiting.number) if waiting else 0.0

    def after_step(self, number: float, step: int) -> None:
        """Apply the changes that are due after `step`; `number` is the sum of `number()` over all ranks."""
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
        """Apply the change that rank 0 has, once it is on record that it holds after this step."""
        agreed = _on_all_ranks(self._world, lambda: self._recorded(step))
        if agreed is not None:
            self._take(agreed, step)

    def _recorded(self, step: int) -> AppliedChange | None:
        """Record and return the change that waits; None if it is refused or unrecordable. Raises Superseded."""
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
        before = self._config
        self._config = changing.changed(self._config, change.fields)
        self._had.append((change.number, change.step, change.fields))
        self._follow(self._config)
        pairs = {name: list(pair) for name, pair in change.changed.items()}
        event = {"number": change.number, "step": step, "changed": pairs, "asked_by": change.by, "why": change.why}
        if "run.steps" in change.fields:
            was, now = ((config.optimizer, config.run.steps) for config in (before, self._config))
            event["means"] = schedule.consequence(was, now, step)
        self._tell("changed", **event)


class ChangeWatch:
    """Looks for new changes in a training's store, on rank 0, in a thread of its own."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._settled = set[int]()
        self._lock = threading.Lock()
        self._known: dict[int, ChangeRecord] = {}
        """By number, the changes that are not yet applied or refused."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep_looking, name="changes", daemon=True)

    def begin(self, settled: frozenset[int]) -> None:
        """Read the store now, and from now on in the thread, for changes of other numbers than these."""
        with self._lock:
            self._settled = set(settled)
            self._known = {}
        self._look()
        if not self._thread.ident:
            self._thread.start()

    def waiting(self, step: int) -> ChangeRecord | None:
        """The first change that is not yet applied or refused and may hold after `step`."""
        with self._lock:
            due = [number for number, change in self._known.items() if change.after <= step]
            return self._known[min(due)] if due else None

    def taken(self, step: int) -> ChangeRecord:
        """Take the first change that waits; the next one waits from now on."""
        change = self.waiting(step)
        assert change is not None
        with self._lock:
            self._settled.add(change.number)
            del self._known[change.number]
        self._look()
        return change

    def give_back(self, change: ChangeRecord) -> None:
        """Let a change wait again, from the next reading on: it could not be recorded."""
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
        """Read the store. If it or one change cannot be read, the next reading tries again."""
        with contextlib.suppress(OSError):
            for number in changes.numbers(self._store):
                with self._lock:
                    if number in self._settled or number in self._known:
                        continue
                    with contextlib.suppress(OSError, ValueError):
                        self._known[number] = changes.read(self._store, number)


def give(config: Config, engine: Engine) -> None:
    """Give an engine another configuration of its optimiser; the optimiser keeps its state."""
    if config is engine.config:
        return
    engine.config = config
    fresh = optimizers.build(engine.model, config.optimizer)
    for group, new in zip(engine.optimizer.param_groups, fresh.param_groups, strict=True):
        group.update({name: value for name, value in new.items() if name not in ("params", "lr")})


def _judged(change: ChangeRecord, config: Config, step: int, token: Token) -> AppliedChange:
    """The record of a change to `config` that holds after `step`, or is refused."""
    try:
        changing.check_in_place(config, change.fields, step)
        before = resolved.dump(config)
        after = resolved.dump(changing.changed(config, change.fields))
    except Invalid as fault:
        refused = f"{fault.field}: {fault}"
        return AppliedChange(change.number, step, token, {}, change.by, change.why, refused, time.time())
    pairs = {name: (changing.value_of(before, name), changing.value_of(after, name)) for name in change.fields}
    return AppliedChange(change.number, step, token, pairs, change.by, change.why, "", time.time())


def _course(store: Path, step: int, lineage: Mapping[str, Any]) -> _Course:
    """The changes that a checkpoint of `step` had, and those on record for later. Raises OSError.

    A superseded process may have recorded a change before `step` that the checkpoint does not have: this change waits.
    """
    had = tuple((number, at, fields) for number, at, fields in lineage.get(LINEAGE, ()))
    known = {number for number, _, _ in had}
    recorded = [change for change in changes.applied(store).values() if change.number not in known]
    to_come = [change for change in recorded if not change.refused and change.step >= step]
    settled = known | {change.number for change in recorded if change.refused} | {change.number for change in to_come}
    return _Course(had, tuple(sorted(to_come, key=lambda change: (change.step, change.number))), frozenset(settled))


def _on_all_ranks(world: World, of_leader: Callable[[], Any]) -> Any:
    """The result of `of_leader`, which rank 0 calls, on all ranks. Raises its OSError on all ranks."""
    value = None
    fault = ""
    if world.is_rank_zero:
        try:
            value = of_leader()
        except OSError as error:
            fault = str(error)
    value, fault = world.broadcast((value, fault))
    if fault:
        raise OSError(fault)
    return value
