"""The saver: saves checkpoints while the training continues. A step waits only until its tensors are copied.

`save` copies this rank's part into shared memory, from which the writer process writes it; `events` returns the outcome
later. A full or slow disk and a dead writer are events, and never end a run.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import paths, regular_file
from slipway.trainer.checkpoint import state
from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, decode
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.checkpoint.saving import parts, random_state
from slipway.trainer.checkpoint.saving.buffer import held_part, hold
from slipway.trainer.checkpoint.saving.channel import Channel
from slipway.trainer.checkpoint.tiers.locations import nvme_folder
from slipway.trainer.checkpoint.tiers.ring import ONE_NODE, NodeRing
from slipway.trainer.checkpoint.tiers.tier import BACKUP, DURABLE, NVME
from slipway.trainer.config.operation import Placement, Storage
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.commits import GIVEN_UP

if TYPE_CHECKING:
    from slipway.trainer.checkpoint.saving.planning import PartPlan

SaveEvent = dict[str, Any]
"""An event for the ledger: `event` and its fields."""
PATIENCE = 10.0
"""Seconds for which a save waits for a free buffer. If it waits in vain, the writer is stuck, and the next saves fail
at once until a buffer is free."""
LAST_COPIES_SECONDS = 600.0
"""Seconds for which the end of a training waits for the copies of its last checkpoint on other tiers."""
LATEST_PART = 600.0
"""Seconds for which rank 0's writer waits for the parts of the other ranks, after its own is written."""


@dataclass(frozen=True)
class _Pending:
    """A save that the writer has not finished."""

    step: int
    buffer: int
    blocked: float
    """Seconds for which it blocked the steps."""
    begun: float
    """The time of its begin: seconds since the epoch."""
    tier: str


class Saver:
    """Saves the checkpoints of one incarnation; every rank has a saver, and all ranks save at the same steps."""

    def __init__(
        self,
        training: str,
        placement: Placement,
        world: World,
        token: fence.Token,
        storage: Storage | None = None,
        ring: NodeRing = ONE_NODE,
    ) -> None:
        """Take this rank's buffers, with the states that they hold. Raises ValueError for a bad key file."""
        # The ranks that save, and under which token.
        self._world = world
        self._token = token
        self._ring = ring

        # Where the checkpoints go.
        self._training = training
        self._store = Path(placement.store)
        self._storage = storage or Storage()
        self._tier_roots = {NVME: str(nvme_folder(placement)), DURABLE: placement.durable, BACKUP: placement.backup}
        if self._storage.key_file:
            encryption.read_key(Path(self._storage.key_file))
        self._previous = ""
        """The folder of the checkpoint that this incarnation began with."""

        # The writer process, and the buffers in shared memory.
        self._memory = slots.from_environment()
        self._channel = Channel(self._memory)
        self._plan: PartPlan | None = None
        self._signature: object = None
        """The signature of the tensors for which the plan was made."""

        # The saves that are under way, and their outcomes.
        self._pending: list[_Pending] = []
        self._unsettled: list[tuple[_Pending, str]] = []
        """Saves that failed by the writer's answer, each with the reason; a commit may be on record all the same."""
        self._events: list[SaveEvent] = []
        self._has_copies = False
        """Whether the writer may still have copies to other tiers to make."""
        self._stuck = False
        """Whether the last save waited in vain for a free buffer."""

    def resumed_from(self, commit: fence.Commit) -> None:
        """Note that this incarnation began with `commit`: unchanged files are linked from it, not written again."""
        self._previous = commit.folder

    def follow(self, token: fence.Token, ring: NodeRing, world: World) -> None:
        """Save under a new token from now on, with the same memory. Pending saves are given up.

        The parts of lost ranks will never come. If a pending save is on record all the same, it counts as committed.
        All ranks make their plans anew, because a new rank has none.
        """
        with contextlib.suppress(fence.Superseded):
            self._receive_answers(0.0)
        if self._pending:
            self._unsettled += [(pending, GIVEN_UP) for pending in self._pending]
            self._pending = []
            self._channel.restart()
        self._settle()
        self._unsettled = []
        self._stuck = False
        self._world = world
        self._token = token
        self._ring = ring
        self._plan = self._signature = None

    def prepare(self, engine: state.Stateful) -> None:
        """Make the plan and allocate memory once the optimiser has its state, so that the first save is not slower.

        All ranks call it at the same step. Raises ValueError if the ranks' tensors do not match.
        """
        if self._plan is None:
            self._plan_for(state.collect(engine, self._world.rank))

    def save(
        self,
        engine: state.Stateful,
        progress: TrainingProgress,
        last: bool = False,
        tiers: tuple[str, ...] = (DURABLE,),
    ) -> None:
        """Copy the state at `progress.step`, and let the writer write it. All ranks call it at the same step.

        `tiers`, the fastest first: the checkpoint is written to the first one, and the writer copies it to the others.
        A checkpoint that is spread over the NVMe of several nodes goes to no other tier. If both buffers are in use, a
        save waits for `PATIENCE` seconds and then fails; the `last` save waits as long as necessary. The event's
        `blocked_seconds` include the wait.
        """
        begun = time.time()
        snapshot = state.collect(engine, self._world.rank)
        plan = self._plan_for(snapshot)
        self._restart_dead_writer()
        patience = 0.0 if self._stuck else PATIENCE
        buffer = self._free_buffer(None if last else patience)
        self._stuck = buffer is None
        if buffer is None:
            reason = "the two checkpoints before it are still being written"
            self._report_failure(progress.step, reason, time.time() - begun)
            return
        self._channel.buffers[buffer].prepare(plan, self._world.device)
        self._channel.buffers[buffer].copy(snapshot, self._world.device)
        request = self._request(plan, snapshot, progress, begun) | self._destinations(tiers)
        self._pending.append(_Pending(progress.step, buffer, time.time() - begun, begun, request["tier"]))
        with contextlib.suppress(BrokenPipeError):  # the next call of `events` reports the dead writer
            self._channel.send(buffer, request)
        if self._memory:
            self._channel.buffers[buffer].seal(held_part(self._token, self._world, snapshot, progress))

    def hold(self, engine: state.Stateful, progress: TrainingProgress, lasting: bool = False) -> None:
        """Copy the state at `progress.step` into memory that outlives this rank, without writing it to a tier.

        All ranks call it at the same step. If the only free buffer of a rank holds its newest state, the rank copies
        nothing; so does a rank that no supervisor started. With `lasting`, the state is sealed on return.
        """
        if not self._memory:
            return
        snapshot = state.collect(engine, self._world.rank)
        plan = self._plan_for(snapshot)
        free = [self._channel.buffers[number] for number in self._free_buffers()]
        part = held_part(self._token, self._world, snapshot, progress)
        hold(self._channel.buffers, free, plan, snapshot, self._world.device, part)
        if lasting:
            for buffer in self._channel.buffers:
                buffer.wait()

    def events(self, seconds: float = 0.0) -> list[SaveEvent]:
        """The outcomes of saves since the last call; waits for up to `seconds` for the first one.

        On rank 0 there is an event for every checkpoint, on the others none. Raises fence.Superseded.
        """
        self._receive_answers(seconds)
        events = self._events
        self._events = []
        return events

    @property
    def busy(self) -> bool:
        """Whether a save is not finished."""
        return bool(self._pending)

    @property
    def has_room(self) -> bool:
        """Whether a save would find a free buffer at once."""
        return next(self._free_buffers(), None) is not None

    @property
    def size(self) -> int:
        """The bytes of this rank's part of a checkpoint; 0 before `prepare`."""
        if self._plan is None:
            return 0
        return sum(section.size for section in self._plan.sections)

    @property
    def bytes_written(self) -> int:
        """The bytes of checkpoints that the writer has written so far, by its last message."""
        return self._channel.bytes_written

    @property
    def writer(self) -> int:
        """The writer's process id."""
        return self._channel.pid

    def close(self) -> None:
        """End the writer at once, unless only copies to other tiers remain: it may finish these first."""
        only_copies = self._has_copies and not self._pending
        self._channel.close(LAST_COPIES_SECONDS if only_copies else 0.0)

    def _plan_for(self, snapshot: state.TrainingState) -> "PartPlan":
        """The plan for these tensors: the present one, unless the tensors have changed on any rank."""
        # Imported here and not at the start, because DCP's planner takes 0.8 s of CPU.
        from slipway.trainer.checkpoint.saving import planning

        signature = planning.signature(snapshot)
        (changed,) = self._world.all_reduce(float(signature != self._signature))
        if self._plan is None or changed:
            self._channel.start()
            self._plan = planning.make_plan(snapshot, self._world)
            self._signature = signature
            for buffer in self._free_buffers():
                self._channel.buffers[buffer].prepare(self._plan, self._world.device)
        return self._plan

    def _request(
        self, plan: "PartPlan", snapshot: state.TrainingState, progress: TrainingProgress, begun: float
    ) -> dict[str, Any]:
        """The fields of `slipway.trainer.checkpoint.saving.writer.Request`, without those of `_destinations`."""
        leads = self._world.is_rank_zero
        pieces = [(section.name, section.begin, section.size) for section in plan.sections]
        return {
            "step": progress.step,
            "incarnation": self._token.incarnation,
            "generation": self._token.generation,
            "rank": self._world.rank,
            "size": self._world.size,
            "store": str(self._store),
            "folder": f"{paths.checkpoints(self._training)}/{self._name(progress.step)}",
            "previous": self._previous,
            "pieces": [
                {
                    "name": name,
                    "begin": begin,
                    "size": size,
                    "frozen": name.startswith("frozen-"),
                    "secret": name.endswith(".safetensors"),
                }
                for name, begin, size in pieces
            ],
            "random_state": random_state.take(),
            "values": dict(snapshot.values),
            "patience": LATEST_PART,
            "begun": begun,
            "progress": asdict(progress) if leads else {},
        }

    def _destinations(self, tiers: tuple[str, ...]) -> dict[str, Any]:
        """The fields for the tier that a checkpoint is written to, and for the tiers that it is copied to."""
        if tiers[0] == BACKUP:
            tiers = (DURABLE, *tiers)
        first, *others = tiers
        spread = first == NVME and self._ring.spreads
        assert not (spread and others), "no node has the whole of a spread checkpoint, to copy it"
        self._has_copies = self._has_copies or (self._world.is_rank_zero and bool(others))
        return {
            "tier": first,
            "root": self._tier_roots[first],
            "copies": {tier: self._tier_roots[tier] for tier in others},
            "keep": asdict(self._storage.nvme),
            "key_file": self._storage.key_file,
            "spread": self._ring.encode() if spread else {},
        }

    def _free_buffers(self) -> Iterator[int]:
        """The buffers that the writer does not use, the one with the newest state last."""
        buffers = self._channel.buffers
        taken = {pending.buffer for pending in self._pending}
        return iter(sorted(set(range(len(buffers))) - taken, key=lambda number: buffers[number].age))

    def _free_buffer(self, seconds: float | None) -> int | None:
        """A buffer that the writer does not use; waits for one, and returns None after `seconds` (None: never)."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            free = next(self._free_buffers(), None)
            if free is not None or (deadline is not None and time.monotonic() > deadline):
                return free
            self._receive_answers(0.1)

    def _receive_answers(self, seconds: float) -> None:
        """Receive the writer's answers; if the writer has died, every pending save has failed."""
        if not self._pending:
            return self._settle()
        for answer in self._channel.answers(seconds):
            self._record_outcome(self._pending.pop(0), answer)
        death = self._channel.death
        if self._pending and death:
            self._unsettled += [(pending, death) for pending in self._pending]
            self._pending = []
        self._settle()

    def _record_outcome(self, pending: _Pending, answer: dict[str, Any]) -> None:
        assert answer["step"] == pending.step
        outcome = answer["outcome"]
        if outcome == "superseded":
            raise fence.Superseded(answer["reason"])
        if outcome == "committed":
            fields = {name: answer[name] for name in ("step", "commit", "seconds", "bytes")}
            fields |= {"tier": pending.tier, "blocked_seconds": pending.blocked}
            self._events.append({"event": "committed", **fields})
        elif outcome == "failed" and self._world.is_rank_zero:
            self._unsettled.append((pending, answer["reason"]))
            self._settle()

    def _settle(self) -> None:
        """Report the saves whose writer gave no good answer: committed where the commit is on record, failed otherwise.

        The writer may have died, or failed, after the record was made: one commit is never both. While the records
        cannot be read, it is neither yet.
        """
        unsettled = self._unsettled
        self._unsettled = []
        for pending, reason in unsettled:
            try:
                size = self._committed_size(pending.step) if self._world.is_rank_zero else None
            except (OSError, ValueError):
                self._unsettled.append((pending, reason))
                continue
            if size is None:
                self._report_failure(pending.step, reason, pending.blocked, pending.tier)
                continue
            fields = {"step": pending.step, "commit": self._name(pending.step), "seconds": time.time() - pending.begun}
            fields |= {"bytes": size, "tier": pending.tier, "blocked_seconds": pending.blocked}
            self._events.append({"event": "committed", **fields})

    def _committed_size(self, step: int) -> int | None:
        """The bytes of this incarnation's commit of a step; None if it is not on record. Raises OSError."""
        for commit in reversed(fence.commits(self._store)):
            if commit.name == self._name(step):
                return decode(regular_file.read(Path(self._tier_roots[commit.tier]) / commit.folder / MANIFEST)).bytes
        return None

    def _report_failure(self, step: int, reason: str, blocked: float, tier: str = "") -> None:
        """Report that this rank's part of a checkpoint is missing, so that rank 0's writer does not wait for it.

        The save blocked the steps for `blocked` seconds. `tier`: the tier to which it could not be written; empty if
        the writer did not get it.
        """
        if self._world.is_rank_zero:
            fields = {"step": step, "reason": reason, "tier": tier, "blocked_seconds": blocked}
            self._events.append({"event": "commit_failed", **fields})
            return
        with contextlib.suppress(OSError):  # rank 0's writer then fails after its own wait
            parts.report(self._store, self._name(step), self._world.rank, {"error": reason})

    def _restart_dead_writer(self) -> None:
        if self._channel.death:
            self._receive_answers(0.0)
            self._channel.restart()

    def _name(self, step: int) -> str:
        return f"{step:09d}.{self._token}"
