"""Budget: after how many generations without progress a job ends, so that the control plane counts and chooses."""

from pathlib import Path

from slipway.trainer.base import codec
from slipway.trainer.record import fence, files
from slipway.trainer.record.heartbeat import Beat

WITHOUT_PROGRESS = 3
"""So many generations in a row may end without a step that no generation before had reached."""


class Budget:
    """The generations of one job; every supervisor counts them, and counts the same."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._best = self._count = 0
        self.step = 0
        """The last step of the generation that ended last, as far as it is on record."""

    def ended(self, token: fence.Token) -> None:
        """Count a generation that has ended."""
        self.step = _reached(self._store, token)
        self._count = 0 if self.step > self._best else self._count + 1
        self._best = max(self._best, self.step)

    @property
    def spent(self) -> str:
        """Why no further generation may begin; empty while one may."""
        if self._count < WITHOUT_PROGRESS:
            return ""
        return f"{self._count} generations in a row made no progress beyond step {self._best}"


def _reached(store: Path, token: fence.Token) -> int:
    """The last step of a generation: all its ranks are at the same one, so that rank 0's heartbeat tells it."""
    try:
        beat = codec.read_if_whole(files.named(store, files.HEARTBEATS, f"{token}.00000"), Beat)
        return beat.step if beat else 0
    except OSError:
        return 0
