"""The judgement of a batch: its loss and its gradient's norm decide, before its update, whether the update is made.

Both come with the one transfer from the device that a step makes in any case, so that judging costs a few microseconds.
They are the same bits on all ranks, and so is the judgement, without a word between them.

A batch whose figures are not finite is left out, as the recipe says (`recovery.policies`), while the weights are from
before its update. A loss far above the last ones is reported, or left out (`slipway.trainer.elastic.outliers`). What is
left out is on record before the next step begins.
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
    """A loss far above those before it, in a training that is to stop there."""

    kind = causes.SPIKE


class BatchJudge:
    """Judges the batches of one incarnation, on every rank alike."""

    def __init__(self, recovery: Recovery, store: Path, token: fence.Token, leads: bool, record: Record) -> None:
        """`leads`: whether this rank writes the records. Raises ValueError for an answer that no such cause has."""
        name, wrong = causes.wrong_choice(recovery.policies)
        if name:
            raise ValueError(f"field recovery.policies.{name}: found {recovery.policies[name]!r}, {wrong}")
        self._recovery, self._store, self._token, self._leads, self._record = recovery, store, token, leads, record
        self._skipped: dict[int, int] = {}
        self._losses = LastLosses()
        self._high = False

    def begin(self, skipped: dict[int, int], losses: Sequence[float]) -> None:
        """The batches that are left out, by what is on record, and the last losses of the steps before."""
        self._skipped, self._losses = dict(skipped), LastLosses(losses)

    def forget_losses(self) -> None:
        """Hold the next losses against none of those before: they are of other data."""
        self._losses, self._high = LastLosses(), False

    def follow(self, recovery: Recovery) -> None:
        """Judge from now on as the recipe says now."""
        self._recovery = recovery

    def leaves_out(self, step: int) -> bool:
        """Whether it is on record that the batch of `step` is left out."""
        return step in self._skipped

    def steps_left_out(self, step: int) -> list[int]:
        """The steps up to `step` that are left out, in order."""
        return sorted(skipped_step for skipped_step in self._skipped if skipped_step <= step)

    @property
    def losses(self) -> list[float]:
        """The losses of the last steps."""
        return self._losses.in_order

    def accepts(self, step: int, loss: float, norm: float, in_place: bool) -> bool:
        """Whether the update of `step` is to be made; where it is not, the batch is left out, and this is on record.

        loss: the mean of the batch. in_place: whether the rank's state is as it was before the batch. Raises Diverged
        and LossSpike when the training must not go on.
        """
        for what, value in (("loss", loss), ("gradient norm", norm)):
            if not math.isfinite(value):
                return self._not_finite(step, f"the {what} of step {step} is {value}", in_place)
        if self._is_spike(loss):
            return self._spike(step, loss, in_place)
        self._losses.add(loss)
        return True

    def roll_back(self, step: int, reason: str) -> str:
        """Have the next start leave out the batches since the newest checkpoint, as the weights are spoilt already.

        Returns the sentence that ends this start.
        """
        if self._recovery.skips == 0 or self._answer(causes.DIVERGED) != causes.SKIP:
            return reason
        if full := self._too_many(step):
            return f"{reason}; {full}"
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
        if full := self._too_many(step):
            raise Diverged(f"{reason}; {full}")
        return self._leave_out(step, causes.DIVERGED, reason)

    def _spike(self, step: int, loss: float, in_place: bool) -> bool:
        high_before, self._high = self._high, True
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
        """Why no more batches may be left out; empty where they may."""
        most, within = self._recovery.skips, self._recovery.skip_steps
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

    def _note(self, steps: Iterable[int], found_at: int, kind: str, reason: str) -> None:
        """Write the records, and the event. Raises OSError, and fence.Superseded: another start decides now."""
        fence.check(self._store, self._token)
        for step in steps:
            skipped_batches.note(self._store, SkippedBatch(step, found_at, kind, reason, str(self._token), time.time()))
            self._record("skipped", step=step, found=found_at, kind=kind, reason=reason)

    def _tell(self, step: int, kind: str, reason: str, action: str) -> None:
        """Write the incident, which the generation survives."""
        if not self._leads:
            return
        token = str(self._token)
        incident = IncidentRecord(token, kind, reason, action, "rank 0", time.time(), step - 1, survived=True)
        with warn_if_unwritable("incident"):
            incident = incidents.note_survived(self._store, incident)
        self._record("incident", id=incident.id, kind=kind, step=step, cause=reason, action=action, nodes=[])

    def _answer(self, cause: str) -> str:
        return causes.answer(cause, self._recovery.policies)
