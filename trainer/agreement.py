"""Agreement of a script's ranks, whose way to talk is their own: rank 0 decides, the others read it in the store.

starts/<token>.json  the commit that all go on from
stops/<token>.json   the step after which all stop
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from trainer import atomic, fence
from trainer.account import told_if_unwritable

POLL_SECONDS = 0.05
NEVER = sys.maxsize


class Agreement:
    """One rank's side, under one token."""

    def __init__(self, store: Path, token: fence.Token, rank: int, ranks: int) -> None:
        self._store, self._token, self._rank, self._ranks = store, token, rank, ranks
        self.last = NEVER
        """The step after which to stop."""

    def decide_start(self, commit: str | None) -> None:
        """Rank 0: all go on from this commit, or begin. Raises fence.Superseded when the token is in use already."""
        if self._ranks > 1 and not self._tell("starts", {"commit": commit}):
            raise fence.Superseded(f"{self._token} is used by another process")

    def start(self) -> str | None:
        """The other ranks: the commit to go on from, once rank 0 has found it."""
        while (told := self._told("starts")) is None:
            time.sleep(POLL_SECONDS)
        commit: str | None = told["commit"]
        return commit

    def after_step(self, step: int, asked: bool) -> None:
        """Agree on the last step; `asked` says whether this rank was asked to stop, and counts for rank 0.

        With several ranks that is the step after this one. None of them can be past it, where they meet in each step,
        as they do to sum gradients.
        """
        if self.last != NEVER:
            return
        if self._rank > 0:
            told = self._told("stops")
            self.last = told["after"] if told else NEVER
        elif asked and self._ranks == 1:
            self.last = step
        elif asked:
            with told_if_unwritable("request to stop"):
                self._tell("stops", {"after": step + 1})
                self.last = step + 1

    def _tell(self, what: str, value: dict[str, Any]) -> bool:
        return atomic.create_only(self._path(what), atomic.readable_json(value))

    def _told(self, what: str) -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = json.loads(self._path(what).read_bytes())
        except FileNotFoundError:
            return None
        return told

    def _path(self, what: str) -> Path:
        return self._store / what / f"{self._token}.json"
