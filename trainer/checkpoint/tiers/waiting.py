"""Waiting for a tier that cannot be read when a training starts.

A read that fails proves nothing about a checkpoint. A start waits for the tier, which mostly comes back; then it uses
another tier or an older checkpoint. If none can be read, it fails: it never begins anew because a tier is away.
"""

import time
from pathlib import Path

from slipway.trainer.base import listing, verify
from slipway.trainer.record import fence, files

SECONDS = 60.0
"""The total wait of one start for tiers. Interruptions of file systems and object stores are mostly shorter."""
PAUSE = 2.0
"""Seconds between two attempts."""


class TierAway(OSError):
    """No tier could be read; the message names each tier and the reason."""


class Wait:
    """The wait of one start, with one deadline for all its reads."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + SECONDS
        self.reasons: dict[str, None] = {}
        """Why tiers could not be read, in the order of their first occurrence."""

    def again(self, reason: str) -> bool:
        """Note why a tier could not be read; pauses, and returns whether to try again."""
        self.reasons[reason] = None
        if time.monotonic() + PAUSE > self._deadline:
            return False
        time.sleep(PAUSE)
        return True

    def check(self) -> None:
        """Raises TierAway if a tier could not be read: it may have a checkpoint."""
        if self.reasons:
            raise TierAway(
                f"the tier is away, and no other one has a checkpoint: {'; '.join(self.reasons)}. "
                "Nothing was set aside; the training starts when the tier can be read"
            )


def commits(store: Path) -> list[fence.Commit]:
    """The valid commits of a training that has a claim, by step. Raises OSError if their records cannot be listed.

    The list is empty only if that is proven: claims can be read, and the newest seals no commit.
    """
    return verify.persistently(lambda: _commits(store))


def _commits(store: Path) -> list[fence.Commit]:
    commit_list = fence.commits(store)
    if commit_list:
        return commit_list
    if not listing.names(store / files.CLAIMS, ".json"):
        raise TierAway(f"{store / files.CLAIMS}: found no claim, expected this process's own")
    names = listing.names_if_there(store / files.COMMITS, ".json")
    claim = fence.newest_claim(store)
    if claim is None or (claim.sealed and not names):
        raise TierAway(f"{store / files.COMMITS}: found no commit, and the newest claim seals some")
    return fence.commits(store)
