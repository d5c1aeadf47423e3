"""Agreement of a script's ranks: rank 0 decides, and the other ranks read its decision in the training's folder.

How the ranks of a script talk to each other is the script's own matter, so files carry the decisions:
starts/<token>.json  the commit that all ranks go on from
stops/<token>.json   the step after which all ranks stop
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slipway.trainer.base import codec
from slipway.trainer.record import fence, files
from slipway.trainer.record.recorder import warn_if_unwritable

POLL_SECONDS = 0.05
NEVER = sys.maxsize

Decision = TypeVar("Decision")


@dataclass(frozen=True)
class AgreedStart:
    """The state from which all ranks continue."""

    commit: str | None
    """None to begin at step 0."""


@dataclass(frozen=True)
class AgreedStop:
    """When all ranks stop."""

    after: int
    """The last step."""


class Agreement:
    """One rank's side, under one token."""

    def __init__(self, store: Path, token: fence.Token, rank: int, ranks: int) -> None:
        self._store = store
        self._token = token
        self._rank = rank
        self._ranks = ranks
        self.last = NEVER
        """The step after which to stop."""

    def decide_start(self, commit: str | None) -> None:
        """Rank 0: all ranks go on from this commit, or begin. Raises fence.Superseded for a token that is in use."""
        if self._ranks > 1 and not self._decide(files.STARTS, AgreedStart(commit)):
            raise fence.Superseded(f"{self._token} is used by another process")

    def start(self) -> str | None:
        """The other ranks: wait for rank 0's decision; the commit to go on from."""
        while (start := self._decided(files.STARTS, AgreedStart)) is None:
            time.sleep(POLL_SECONDS)
        return start.commit

    def after_step(self, step: int, stop_requested: bool) -> None:
        """Agree on the last step; `stop_requested`: whether this rank was asked to stop, which counts for rank 0.

        With several ranks the last step is the one after this one: no rank is past it, because ranks exchange gradients
        in every step, and so wait for each other.
        """
        if self.last != NEVER:
            return
        if self._rank > 0:
            stop = self._decided(files.STOPS, AgreedStop)
            self.last = stop.after if stop else NEVER
        elif stop_requested and self._ranks == 1:
            self.last = step
        elif stop_requested:
            with warn_if_unwritable("request to stop"):
                self._decide(files.STOPS, AgreedStop(step + 1))
                self.last = step + 1

    def _decide(self, folder: str, decision: AgreedStart | AgreedStop) -> bool:
        """False when the ranks of this token decided before."""
        return codec.create_only(files.named(self._store, folder, self._token), decision)

    def _decided(self, folder: str, kind: type[Decision]) -> Decision | None:
        return codec.read_if_there(files.named(self._store, folder, self._token), kind)
