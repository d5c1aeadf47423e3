"""What a restore says on its way: which checkpoints and copies it passed over, and what it waits for."""

from collections.abc import Callable

from slipway.trainer.base import console
from slipway.trainer.checkpoint.tiers.node_copies import SourceFault
from slipway.trainer.record.fence import Commit

Record = Callable[..., None]
"""Writes an event to the ledger."""


class RestoreWords:
    """The words of one rank, in the ledger and on standard error."""

    def __init__(self, record: Record, leads: bool, moved: Callable[[], None]) -> None:
        """`moved` is called while the restore waits for a tier: to wait is no hang."""
        self._record, self._leads, self._moved = record, leads, moved

    def source_fault(self, commit: Commit, fault: SourceFault) -> None:
        """A copy of a file could not be had; the next place is asked for it."""
        self._record("source_failed", **fault.fields(commit))
        _say(f"{fault.node}: {fault.reason}")

    def lost(self, commit: Commit, reason: str) -> None:
        """No node gives this checkpoint whole now."""
        self._record("passed_over", commit=commit.name, reason=reason)
        _say(f"checkpoint {commit.name} is passed over: {reason}")

    def memory_fault(self, step: int, reason: str) -> None:
        """What the memory of the nodes holds of this step does not verify."""
        self._record("memory_damaged", step=step, reason=reason)
        if self._leads:
            _say(f"step {step} in the memory of the nodes is passed over: {reason}")

    def damaged(self, commit: Commit, reason: str) -> None:
        """This checkpoint is damaged, and counts no more."""
        self._record("set_aside", commit=commit.name, reason=reason)

    def away(self, reason: str) -> None:
        """A tier does not answer."""
        self._moved()
        self._record("tier_away", reason=reason)
        if self._leads:
            _say(f"waiting: {reason}")


def _say(text: str) -> None:
    console.warn(f"trainer: {text}")
