"""The judgement of a batch: its loss and its gradient's norm decide whether the optimiser takes its step.

Both come with the one transfer from the device that every step makes, so the judgement costs a few microseconds. All
ranks have the same bits, and so make the same judgement without a collective.

A batch whose loss or norm is not finite is skipped if the recipe says so (`recovery.policies`). A batch whose loss is
far above the last ones is reported or skipped (`slipway.trainer.elastic.outliers`). A skipped batch is on record before
the next step begins.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from slipway.trainer.base import console
from slipway.trainer.config.operation import Recovery
from slipway.trainer.elastic import skipped_batches
from slipway.trainer.elastic.outliers import LastLosses
from slipway.trainer.elastic.skipped_batches import SkippedBatch
from slipway.trainer.record import causes, fence, incidents
from slipway.trainer.record.incidents import IncidentRecord
from slipway.trainer.record.recorder import warn_if_unwritable
from slipway.trainer.record.scores import Diverged

Record = Callable[..., None]
"""Writes an event to the ledger, on rank 0 alone."""


class LossSpike(causes.Failure):
    """A loss is far above those before it, and the recipe stops the training there."""

    kind = causes.SPIKE


class BatchJudge:
    """Judges the batches of one incarnation, on every rank alike."""

    def __init__(self, recovery: Recovery, store: Path, token: fence.Token, leads: bool, record: Record) -> None:
        """`leads`: whether this rank writes the records. Raises ValueError for an unknown policy."""
        name, wrong = causes.wrong_choice(recovery.policies)
        if name:
            raise ValueError(f"field recovery.policies.{name}: found {recovery.policies[name]!r}, {wrong}")
        self._recovery = recovery
        self._store = store
        self._token = token
        self._leads = leads
        self._record = record
        self._skipped: dict[int, int] = {}
        """The steps whose batches are skipped, each with the step at which the reason was found."""
        self._losses = LastLosses()
        self._high = False
        """Whether the last loss was a spike: a row of spikes is reported once."""

    def begin(self, skipped: dict[int, int], losses: Sequence[float]) -> None:
        """Begin with the skipped batches that are on record, and the losses of the last steps."""
        self._skipped = dict(skipped)
        self._losses = LastLosses(losses)

    def forget_losses(self) -> None:
        """Forget the last losses: the next ones are of other data."""
        self._losses = LastLosses()
        self._high = False

    def follow(self, recovery: Recovery) -> None:
        """Go on with another configuration."""
        self._recovery = recovery

    def leaves_out(self, step: int) -> bool:
        """Whether it is on record that the batch of `step` is skipped."""
        return step in self._skipped

    def steps_left_out(self, step: int) -> list[int]:
        """The steps up to `step` whose batches are skipped, in order."""
        return sorted(skipped_step for skipped_step in self._skipped if skipped_step <= step)

    @property
    def losses(self) -> list[float]:
        """The losses of the last steps."""
        return self._losses.in_order

    def accepts(self, step: int, loss: float, norm: float, in_place: bool) -> bool:
        """Whether to take the optimiser's step; if not, it records that the batch of `step` is skipped.

        loss: the mean of the batch. in_place: whether the engine can undo all changes of the batch. Raises Diverged and
        LossSpike if the training must not go on.
        """
        for what, value in (("loss", loss), ("gradient norm", norm)):
            if not math.isfinite(value):
                return self._not_finite(step, f"the {what} of step {step} is {value}", in_place)
        if self._is_spike(loss):
            return self._spike(step, loss, in_place)
        self._losses.add(loss)
        return True

    def roll_back(self, step: int, reason: str) -> str:
        """Record that the next start skips the batches since the newest checkpoint: the weights are spoilt already.

        Returns the reason with which this start ends.
        """
        if self._recovery.skips == 0 or self._answer(causes.DIVERGED) != causes.SKIP:
            return reason
        too_many = self._too_many(step)
        if too_many:
            return f"{reason}; {too_many}"
        if self._leads:
            with warn_if_unwritable("record of what is left out"):
                commits = fence.commits(self._store)
                first = commits[-1].step + 1 if commits else 1
                self._note(range(first, step + 1), step, causes.DIVERGED, reason)
        return f"{reason}; the next start leaves out the batches since the newest checkpoint"

    def _not_finite(self, step: int, reason: str, in_place: bool) -> bool:
        if self._answer(causes.DIVERGED) != causes.SKIP:
            raise Diverged(reason)
        if not in_place:
            raise Diverged(self.roll_back(step, reason))
        too_many = self._too_many(step)
        if too_many:
            raise Diverged(f"{reason}; {too_many}")
        return self._leave_out(step, causes.DIVERGED, reason)

    def _spike(self, step: int, loss: float, in_place: bool) -> bool:
        high_before = self._high
        self._high = True
        reason = f"the loss of step {step} is {loss:.4f}, that of the steps before {self._losses.median:.4f}"
        answer = self._answer(causes.SPIKE)
        if answer == causes.STOP:
            raise LossSpike(reason)
        if answer == causes.SKIP and in_place and not self._too_many(step):
            return self._leave_out(step, causes.SPIKE, reason)
        self._losses.add(loss)
        if not high_before:
            self._tell(step, causes.SPIKE, reason, "reported it, and went on")
        return True

    def _is_spike(self, loss: float) -> bool:
        least = self._recovery.spike_sigmas
        is_spike = least > 0 and self._losses.is_spike(loss, least)
        self._high = self._high and is_spike
        return is_spike

    def _too_many(self, step: int) -> str:
        """Why no more batches may be skipped; empty if they may."""
        most = self._recovery.skips
        within = self._recovery.skip_steps
        before = skipped_batches.reasons(self._skipped, step, within)
        if len(before) < most:
            return ""
        history = f"at steps {skipped_batches.listed(before)} before" if before else "never before"
        return f"batches were left out {history}, expected {most} times in {within} steps at most"

    def _leave_out(self, step: int, kind: str, reason: str) -> bool:
        self._skipped[step] = step
        if self._leads:
            with warn_if_unwritable("record of what is left out"):
                self._note([step], step, kind, reason)
            console.say(f"trainer: {reason}; the batch is left out")
        self._tell(step, kind, reason, "left the batch out")
        return False

    def _note(self, steps: Iterable[int], detected_step: int, kind: str, reason: str) -> None:
        """Write the records and the events. Raises OSError, and fence.Superseded if another start decides now."""
        fence.check(self._store, self._token)
        for step in steps:
            batch = SkippedBatch(step, detected_step, kind, reason, str(self._token), time.time())
            skipped_batches.note(self._store, batch)
            self._record("skipped", step=step, found=detected_step, kind=kind, reason=reason)

    def _tell(self, step: int, kind: str, reason: str, action: str) -> None:
        """Record an incident that the generation survives."""
        if not self._leads:
            return
        token = str(self._token)
        incident = IncidentRecord(token, kind, reason, action, "rank 0", time.time(), step - 1, survived=True)
        with warn_if_unwritable("incident"):
            incident = incidents.note_survived(self._store, incident)
        self._record("incident", id=incident.id, kind=kind, step=step, cause=reason, action=action, nodes=[])

    def _answer(self, cause: str) -> str:
        return causes.answer(cause, self._recovery.policies)
