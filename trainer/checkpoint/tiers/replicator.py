"""The replicator: a thread of rank 0's writer that copies commits to further tiers, while the training goes on.

It copies the newest commit that was requested for each tier. A copy that a tier cannot take now (full, read-only, away)
is tried again until the tier takes it or a newer commit is requested. The outcome is an event in the ledger, in the
replicator's own segment.
"""

import contextlib
import functools
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.tiers import copying, replicas
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable
from slipway.trainer.record import fence, ledger
from slipway.trainer.record.fence import Commit

RETRY_SECONDS = 30.0


@dataclass(frozen=True)
class Copy:
    """A requested copy of a commit to a tier; `source` is the commit's folder."""

    store: Path
    commit: Commit
    source: Path
    tier: str
    where: str
    """The tier's folder or URL."""


class Replicator:
    """Copies in a thread of its own, which starts at once."""

    def __init__(self) -> None:
        self._requested: dict[str, Copy] = {}
        self._changed = threading.Condition()
        self._ending = False
        threading.Thread(target=self._run, name="replicator", daemon=True).start()

    def request(self, copy: Copy) -> None:
        """Request a copy; it replaces an older one that the tier has not taken yet."""
        with self._changed:
            self._requested[copy.tier] = copy
            self._changed.notify_all()

    def commits_in_progress(self) -> set[str]:
        """The names of the commits whose copies are not finished."""
        with self._changed:
            return {copy.commit.name for copy in self._requested.values()}

    def finish(self, seconds: float) -> None:
        """Try every requested copy once more, and wait up to `seconds` for the outcomes."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._requested, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requested)
                copies = list(self._requested.values())
                ending = self._ending
            done = [copy for copy in copies if _try_copy(copy) or ending]
            with self._changed:
                for copy in done:
                    if self._requested.get(copy.tier) == copy:
                        del self._requested[copy.tier]
                self._changed.notify_all()
                if not done:
                    self._changed.wait_for(functools.partial(self._differs_from, copies), RETRY_SECONDS)

    def _differs_from(self, copies: list[Copy]) -> bool:
        return self._ending or list(self._requested.values()) != copies


def _try_copy(copy: Copy) -> bool:
    """Copy, and record the outcome in the ledger; returns False if the copy must be tried again."""
    begun = time.time()
    try:
        size = copying.replicate(copy.source, copying.tier_at(copy.where), copy.commit.folder, copy.commit.manifest)
        # A newer incarnation removes the copies that this one was writing: such a copy must not be recorded.
        fence.check(copy.store, copy.commit.token)
        replicas.record(copy.store, copy.commit, copy.tier, size)
    except fence.Superseded as error:
        _note(copy, "replication_failed", reason=str(error))
        return True
    except (DamagedCheckpoint, TierUnavailable, OSError) as error:
        _note(copy, "replication_failed", reason=str(error))
        replicas.note_fault(copy.store, copy.commit.name, copy.tier, replicas.NOT_COPIED, str(error))
        return isinstance(error, DamagedCheckpoint)
    _note(copy, "replicated", bytes=size, seconds=time.time() - begun)
    return True


def _note(copy: Copy, event: str, **fields: str | int | float) -> None:
    fields = {"step": copy.commit.step, "commit": copy.commit.name, "tier": copy.tier, **fields}
    with contextlib.suppress(OSError):  # on a full disk, the event is dropped
        ledger.note(copy.store, copy.commit.token, "replicator", event, **fields)
