"""The lookout: a thread of rank 0 that checks all ranks from time to time, while the steps go on.

It reads the ranks' heartbeats every ten seconds, so it adds no collective to a step. It looks for a rank that is slower
than the others for a minute, and for a checkpoint whose writer makes no progress. Of either it records an incident that
the training survives. If the recipe replaces the node of a slow rank, it asks the training to stop.
"""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from slipway.trainer.config.operation import Recovery
from slipway.trainer.elastic.stragglers import SlowRanks, slow_ranks
from slipway.trainer.record import causes, fence, heartbeat, incidents
from slipway.trainer.record.commits import GIVEN_UP
from slipway.trainer.record.heartbeat import Beat
from slipway.trainer.record.incidents import IncidentRecord
from slipway.trainer.record.phases import TRAINING
from slipway.trainer.record.recorder import warn_if_unwritable

LOOK_SECONDS = 10.0
PERSISTS_SECONDS = 60.0
"""A rank must be slow for this time: a profile, or a neighbour's job, may slow it for a shorter one."""

STALL_SECONDS = 60.0
"""A checkpoint's writer has stalled if it has written no byte for this time. A stall is only reported, so this may be
far below the deadline of a rank that waits for a save."""

Record = Callable[..., None]
"""Writes an event to the ledger."""


class Saving(Protocol):
    """The part of `slipway.trainer.checkpoint.saving.saver.Saver` that the lookout reads."""

    @property
    def busy(self) -> bool: ...

    @property
    def bytes_written(self) -> int: ...


class Lookout:
    """The lookout of one incarnation; on ranks other than 0 it does nothing."""

    def __init__(
        self,
        recovery: Recovery,
        store: Path,
        token: fence.Token,
        leads: bool,
        record: Record,
        saving: Saving,
        stalls: float = STALL_SECONDS,
    ) -> None:
        """`stalls`: seconds without a byte after which a checkpoint's writer has stalled."""
        self.recovery = recovery
        self._store = store
        self._token = token
        self._record = record
        self.asks_to_stop = ""
        """Why the training must stop after its step; empty if it need not."""

        # The speed of the ranks.
        self._slow = SlowRanks(PERSISTS_SECONDS)
        self._steps: dict[int, int] = {}
        """By rank, the step of its newest heartbeat."""

        # The saves.
        self._saving = saving
        self._stalls = stalls
        self._written = 0
        self._written_at = time.monotonic()
        self._stalled = False
        self._failing = False
        """Whether the newest checkpoint could not be saved."""

        self._closing = threading.Event()
        if leads:
            threading.Thread(target=self._run, name="lookout", daemon=True).start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def saved(self, event: Mapping[str, Any]) -> None:
        """Handle the saver's event of a checkpoint; the first failure after a success becomes an incident."""
        failed = event["event"] == "commit_failed" and event["reason"] != GIVEN_UP
        if failed and not self._failing:
            reason = f"the checkpoint of step {event['step']} could not be saved: {event['reason']}"
            self._tell(causes.STORAGE, reason, "goes on, and saves again when it is due", event["step"], (), ())
        self._failing = failed

    def look(self, now: float) -> None:
        """Check the ranks and the saves once; `now`: this process's monotonic clock. Raises OSError."""
        beats = {beat.rank: beat for beat in heartbeat.read(self._store, self._token)}
        if self.recovery.straggler_sigmas:
            self._look_for_stragglers(beats, now)
        self._look_at_saves(max((beat.step for beat in beats.values()), default=0), now)

    def _look_for_stragglers(self, beats: dict[int, Beat], now: float) -> None:
        own = {rank: beat.own for rank, beat in beats.items() if beat.own and beat.phase == TRAINING.name}
        slow = slow_ranks(own, self.recovery.straggler_sigmas)
        # A rank that saves, validates or hangs has no new measurement of its speed.
        advanced_ranks = {rank for rank in own if len(own) > 1 and beats[rank].step > self._steps.get(rank, -1)}
        self._steps |= {rank: beats[rank].step for rank in advanced_ranks}
        for rank in self._slow.look(slow, advanced_ranks, now):
            beat = beats[rank]
            reason = (
                f"rank {rank} on {beat.node} needs {1e3 * beat.own:.0f} ms for its own part of a step, "
                f"{slow[rank]:.1f} times as long as the others, after step {beat.step}"
            )
            replaces = causes.answer(causes.STRAGGLER, self.recovery.policies) == causes.REPLACE
            action = "stops after a checkpoint, to go on with another node" if replaces else "reported it, and went on"
            self._tell(causes.STRAGGLER, reason, action, beat.step, (rank,), (beat.node,))
            if replaces:
                self.asks_to_stop = f"asked to stop, as {reason}"

    def _look_at_saves(self, step: int, now: float) -> None:
        busy = self._saving.busy
        written = self._saving.bytes_written
        if not busy or written != self._written:
            self._written = written
            self._written_at = now
            self._stalled = False
        elif now - self._written_at >= self._stalls and not self._stalled:
            self._stalled = True
            reason = f"no byte of a checkpoint has been written for {now - self._written_at:.0f} s, after step {step}"
            self._tell(causes.STORAGE, reason, "reported it, and went on", step, (0,), ())

    def _tell(
        self, kind: str, reason: str, action: str, step: int, ranks: tuple[int, ...], nodes: tuple[str, ...]
    ) -> None:
        incident = IncidentRecord(
            str(self._token), kind, reason, action, "rank 0", time.time(), step, ranks, nodes, survived=True
        )
        with warn_if_unwritable("incident"):
            incident = incidents.note_survived(self._store, incident)
        self._record("incident", id=incident.id, kind=kind, step=step, cause=reason, action=action, nodes=list(nodes))

    def _run(self) -> None:
        while not self._closing.wait(LOOK_SECONDS):
            with warn_if_unwritable("look at the ranks"):
                self.look(time.monotonic())
