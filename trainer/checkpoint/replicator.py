"""The replicator: beside rank 0's writer, it copies commits to further tiers, and the training never waits for it.

For each tier the newest commit is wanted; one that a tier cannot take now (full, read-only, away) is tried again
until it can, or a newer one is wanted. What comes of it is an event in the ledger, in a segment of its own.
"""

import contextlib
import functools
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from trainer import ledger
from trainer.checkpoint import replicas, tiers
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.tiers import Unavailable
from trainer.fence import Commit

RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Copy:
    """A commit that is to be copied to a tier; `source` is its folder."""

    store: Path
    commit: Commit
    source: Path
    tier: str
    where: str
    """The tier's folder or URL."""


class Replicator:
    def __init__(self) -> None:
        self._wanted: dict[str, Copy] = {}
        self._changed = threading.Condition()
        self._ending = False
        threading.Thread(target=self._run, name="replicator", daemon=True).start()

    def want(self, copy: Copy) -> None:
        """Have a commit copied, instead of an older one that the tier has not taken yet."""
        with self._changed:
            self._wanted[copy.tier] = copy
            self._changed.notify_all()

    def names(self) -> set[str]:
        """The commits that are still being copied."""
        with self._changed:
            return {copy.commit.name for copy in self._wanted.values()}

    def finish(self, seconds: float) -> None:
        """Try once more what is wanted, and wait for what comes of it, for up to `seconds`."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._wanted, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted)
                copies, ending = list(self._wanted.values()), self._ending
            done = [copy for copy in copies if _copied(copy) or ending]
            with self._changed:
                for copy in done:
                    if self._wanted.get(copy.tier) == copy:
                        del self._wanted[copy.tier]
                self._changed.notify_all()
                if not done:
                    self._changed.wait_for(functools.partial(self._differs_from, copies), RETRY_SECONDS)

    def _differs_from(self, copies: list[Copy]) -> bool:
        return self._ending or list(self._wanted.values()) != copies


def _copied(copy: Copy) -> bool:
    """Copy, and say in the ledger what came of it; whether the copy need not be tried again."""
    begun = time.time()
    try:
        size = tiers.replicate(copy.source, tiers.tier(copy.where), copy.commit.folder, copy.commit.manifest)
        replicas.record(copy.store, copy.commit, copy.tier, size)
    except (Damaged, Unavailable, OSError) as error:
        _note(copy, "replication_failed", reason=str(error))
        return isinstance(error, Damaged)
    _note(copy, "replicated", bytes=size, seconds=time.time() - begun)
    return True


def _note(copy: Copy, event: str, **fields: str | int | float) -> None:
    told = {"step": copy.commit.step, "commit": copy.commit.name, "tier": copy.tier, **fields}
    with contextlib.suppress(OSError):  # a full disk costs the event
        ledger.note(copy.store, copy.commit.token, "replicator", event, **told)
