"""The saver: checkpoints beside the training. A step is held up for the copy of its tensors, and for nothing else.

`save` copies this rank's part into shared memory and leaves it to the writer process; `events` says later what has
come of it. A full or slow disk and a dead writer are events, never the end of a run.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer import fence
from trainer.checkpoint import parts, places, planning, random_state, sealing, state
from trainer.checkpoint.channel import Channel
from trainer.checkpoint.interval import BACKUP, DURABLE, NVME
from trainer.checkpoint.planning import Plan
from trainer.checkpoint.progress import Progress
from trainer.operation import Placement, Storage
from trainer.world import World

Event = dict[str, Any]
"""For the ledger: `event` and its fields."""
PATIENCE = 10.0
"""Seconds for which a save waits for one of the buffers while both are still being written."""
LAST_COPIES_SECONDS = 600.0
"""For which the end of a training waits for copies of its last checkpoint to other tiers."""
LATEST_PART = 600.0
"""Seconds for which rank 0's writer waits for the other ranks' parts once its own is written."""


@dataclass(frozen=True)
class _Pending:
    """A snapshot that is being written."""

    step: int
    buffer: int
    blocked: float
    """Seconds for which the training was held up."""


class Saver:
    """Saves one incarnation's checkpoints; every rank has one, and all save at the same steps."""

    def __init__(
        self, training: str, placement: Placement, world: World, token: fence.Token, storage: Storage | None = None
    ) -> None:
        """Start the writer: it is ready by the time that the model is built. Raises ValueError for a bad key file."""
        self._world, self._token = world, token
        self._store, self._training, self._storage = Path(placement.store), training, storage or Storage()
        self._roots = {NVME: str(places.nvme(placement)), DURABLE: placement.durable, BACKUP: placement.backup}
        if self._storage.key_file:
            sealing.read_key(Path(self._storage.key_file))
        self._channel = Channel()
        self._plan: Plan | None = None
        self._signature: object = None
        self._pending: list[_Pending] = []
        self._events: list[Event] = []
        self._previous = ""
        self._copies = False

    def continues(self, commit: fence.Commit) -> None:
        """This incarnation begins with `commit`: what has not changed since is referred to, and not written again."""
        self._previous = commit.folder

    def prepare(self, engine: state.Stateful) -> None:
        """Plan, and have memory made, once the optimiser has its state: the first save is then no slower than others.

        All ranks call at the same step. Raises ValueError when the ranks' tensors don't add up.
        """
        if self._plan is None:
            self._planned(state.collect(engine, self._world.rank))

    def save(
        self, engine: state.Stateful, progress: Progress, last: bool = False, tiers: tuple[str, ...] = (DURABLE,)
    ) -> None:
        """Take a snapshot of `progress.step` and have it written. All ranks call at the same step.

        `tiers`, the fastest first: it is written to the first one, and copied from there by the writer.
        While both buffers are being written it waits `PATIENCE` seconds for one, the `last` save for as long as it
        takes; a save that finds none is given up.
        """
        begun = time.time()
        snapshot = state.collect(engine, self._world.rank)
        plan = self._planned(snapshot)
        self._revive()
        buffer = self._free_buffer(None if last else PATIENCE)
        if buffer is None:
            self._give_up(progress.step, "the two checkpoints before it are still being written")
            return
        self._channel.buffers[buffer].hold(plan, self._world.device)
        self._channel.buffers[buffer].take(snapshot, self._world.device)
        request = self._request(plan, snapshot, progress, begun) | self._places(tiers)
        self._pending.append(_Pending(progress.step, buffer, time.time() - begun))
        with contextlib.suppress(BrokenPipeError):  # its death is noticed when it is asked for answers
            self._channel.send(buffer, request)

    def events(self, seconds: float = 0.0) -> list[Event]:
        """What has come of saves since the last call; waits for up to `seconds` for something to come.

        Rank 0 is told of every checkpoint, the others of none. Raises fence.Superseded.
        """
        self._collect(seconds)
        events, self._events = self._events, []
        return events

    @property
    def busy(self) -> bool:
        """Whether a snapshot is still being written."""
        return bool(self._pending)

    @property
    def writer(self) -> int:
        """The writer's process id."""
        return self._channel.pid

    def close(self) -> None:
        """End the writer, whatever it is doing, but let it make the copies to other tiers that are still to come."""
        self._channel.close(LAST_COPIES_SECONDS if self._copies and not self._pending else 0.0)

    def _planned(self, snapshot: state.State) -> Plan:
        """The plan for these tensors: the one there is, unless they have changed on any rank."""
        signature = planning.signature(snapshot)
        (changed,) = self._world.sum(float(signature != self._signature))
        if self._plan is None or changed:
            self._plan, self._signature = planning.make(snapshot, self._world), signature
            for buffer in self._free_buffers():
                self._channel.buffers[buffer].hold(self._plan, self._world.device)
        return self._plan

    def _request(self, plan: Plan, snapshot: state.State, progress: Progress, begun: float) -> dict[str, Any]:
        """What `trainer.checkpoint.writer.Request` takes."""
        leads = self._world.leads
        pieces = [(section.name, section.begin, section.size) for section in plan.sections]
        return {
            "step": progress.step,
            "incarnation": self._token.incarnation,
            "generation": self._token.generation,
            "rank": self._world.rank,
            "size": self._world.size,
            "store": str(self._store),
            "folder": f"checkpoints/{self._training}/{self._name(progress.step)}",
            "previous": self._previous,
            "pieces": [
                {"name": name, "begin": begin, "size": size, "frozen": name.startswith("frozen-")}
                for name, begin, size in pieces
            ],
            "random_state": random_state.take(),
            "values": dict(snapshot.values),
            "patience": LATEST_PART,
            "begun": begun,
            "progress": asdict(progress) if leads else {},
            "tensors": {name: asdict(entry) for name, entry in plan.tensors.items()},
        }

    def _places(self, tiers: tuple[str, ...]) -> dict[str, Any]:
        """Where a checkpoint goes, first and then."""
        first, *others = tiers if tiers[0] != BACKUP else (DURABLE, *tiers)
        self._copies = self._copies or (self._world.leads and bool(others))
        return {
            "tier": first,
            "root": self._roots[first],
            "copies": {tier: self._roots[tier] for tier in others},
            "keep": asdict(self._storage.nvme),
            "key_file": self._storage.key_file,
        }

    def _free_buffers(self) -> Iterator[int]:
        taken = {pending.buffer for pending in self._pending}
        return (number for number in range(len(self._channel.buffers)) if number not in taken)

    def _free_buffer(self, seconds: float | None) -> int | None:
        """A buffer that nobody reads, waited for; None when there is none after `seconds`."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while (free := next(self._free_buffers(), None)) is None:
            if deadline is not None and time.monotonic() > deadline:
                return None
            self._collect(0.1)
        return free

    def _collect(self, seconds: float) -> None:
        """Take the writer's answers; when it has died, what it was asked for has failed."""
        if not self._pending:
            return
        for answer in self._channel.answers(seconds):
            self._settle(self._pending.pop(0), answer)
        if self._pending and (death := self._channel.death):
            for pending in self._pending:
                self._give_up(pending.step, death)
            self._pending = []

    def _settle(self, pending: _Pending, answer: dict[str, Any]) -> None:
        assert answer["step"] == pending.step
        outcome = answer["outcome"]
        if outcome == "superseded":
            raise fence.Superseded(answer["reason"])
        if outcome == "committed":
            told = {name: answer[name] for name in ("step", "commit", "seconds", "bytes")}
            self._events.append({"event": "committed", **told, "blocked_seconds": pending.blocked})
        elif outcome == "failed" and self._world.leads:
            self._events.append({"event": "commit_failed", "step": pending.step, "reason": answer["reason"]})

    def _give_up(self, step: int, reason: str) -> None:
        """This rank's part of a checkpoint will not come: rank 0's writer need not wait for it."""
        if self._world.leads:
            self._events.append({"event": "commit_failed", "step": step, "reason": reason})
            return
        with contextlib.suppress(OSError):  # then rank 0's writer waits in vain, and gives up as well
            parts.report(self._store, self._name(step), self._world.rank, {"error": reason})

    def _revive(self) -> None:
        """Have a writer again where it has died."""
        if self._channel.death:
            self._collect(0.0)
            self._channel.restart()

    def _name(self, step: int) -> str:
        return f"{step:09d}.{self._token}"
