"""Waiting for a tier that cannot be read when a training starts: for how long, and what is said then.

A read that fails proves nothing about a checkpoint. A start waits for the tier, as it mostly comes back, then takes
what another tier or an older checkpoint gives, and fails where none gives anything: it never begins anew for want of an
answer.
"""

import time
from pathlib import Path

from slipway.trainer.base import listing, verify
from slipway.trainer.record import fence, files

SECONDS = 60.0
"""How long one start waits for tiers in all. An interruption of a file system or an object store is mostly shorter."""
PAUSE = 2.0
"""Seconds between two attempts."""


class TierAway(OSError):
    """No tier could be read; the message names each and why."""


class Wait:
    """The wait of one start: one deadline for all that it reads."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + SECONDS
        self.reasons: dict[str, None] = {}
        """Why tiers could not be read, in the order of their first time."""

    def again(self, reason: str) -> bool:
        """Note why a tier could not be read; pauses and returns True while it is worth another attempt."""
        self.reasons[reason] = None
        if time.monotonic() + PAUSE > self._deadline:
            return False
        time.sleep(PAUSE)
        return True

    def check(self) -> None:
        """Raises TierAway when a tier could not be read: there may be a checkpoint that nobody has seen."""
        if self.reasons:
            raise TierAway(
                f"the tier is away, and no other one has a checkpoint: {'; '.join(self.reasons)}. "
                "Nothing was set aside; the training starts when the tier can be read"
            )


def commits(store: Path) -> list[fence.Commit]:
    """The valid commits of a training that has a claim, by step. Raises OSError when their records cannot be listed.

    None is an answer only where it is proven: the claims are there, and they seal nothing.
    """
    return verify.persistently(lambda: _commits(store))


def _commits(store: Path) -> list[fence.Commit]:
    commit_list = fence.commits(store)
    if commit_list:
        return commit_list
    if not listing.names(store / files.CLAIMS, ".json"):
        raise TierAway(f"{store / files.CLAIMS}: found no claim, expected this process's own")
    there = listing.names_if_there(store / files.COMMITS, ".json")
    claim = fence.newest_claim(store)
    if claim is None or (claim.sealed and not there):
        raise TierAway(f"{store / files.COMMITS}: found no commit, and the newest claim seals some")
    return fence.commits(store)
