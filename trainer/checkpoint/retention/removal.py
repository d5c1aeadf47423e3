"""Removal: the one door through which the bytes of a checkpoint leave a tier.

Retention in the control plane, the node that clears its NVMe and the writer that keeps it small all remove through
`Remover`. At the moment of each removal it reads anew what is on record. A checkpoint stays

- when any record that it must know cannot be read: "could not be read" is not "there is none";
- when it counts on this tier: it is valid or sealed, and no record withdraws it;
- when something refers to it: a hold of a process that reads it, and what the caller's `References` say;
- when nothing is on record that it could be measured by: no commit, or a claim older than its own token.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import digest, listing
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.retention import holds
from slipway.trainer.checkpoint.tiers.tier import Tier
from slipway.trainer.record import fence, files, removals
from slipway.trainer.record.fence import Claim, Token

References = Callable[[str, str], Sequence[str]]
"""What refers to a checkpoint, from its folder and the SHA-256 of the manifest that it has there ("" without one)."""
OPTIONAL = (files.SET_ASIDE, files.PRUNED, files.REPLICAS, files.WITHDRAWN)
"""Folders of records that a training has only once it has such a record."""


class Unknown(OSError):
    """The records of a training do not say what may be removed; the message says what is missing."""


@dataclass(frozen=True)
class Records:
    """What is on record about the checkpoints of a training, read at one moment, whole or not at all."""

    store: Path
    claim: Claim
    valid: frozenset[str]
    """The names of the commits that count, those whose record is damaged too."""
    gone: frozenset[str]
    """The names of those that were set aside or pruned."""

    @classmethod
    def read(cls, store: Path) -> "Records":
        """Raises Unknown, OSError and ValueError where one cannot be read."""
        if not listing.names(store / files.CLAIMS, ".json"):
            raise Unknown(f"{store / files.CLAIMS}: found no claim, expected one of the training that has checkpoints")
        for folder in OPTIONAL:
            listing.names_if_there(store / folder)
        if not listing.names(store / files.COMMITS, ".json"):
            raise Unknown(
                f"{store / files.COMMITS}: found no commit, expected one of the training that has checkpoints"
            )
        claim = fence.newest_claim(store)
        if claim is None:
            raise Unknown(f"{store / files.CLAIMS}: found no claim that can be read")
        valid = fence.names_under(store, claim)
        return cls(store, claim, frozenset(valid), frozenset(removals.names_under(store, claim)))

    def withdrawn(self, name: str, tier: str) -> bool:
        """Whether the copy of a commit on a tier is on record as withdrawn. Raises OSError."""
        return tier in removals.withdrawn(self.store, name, self.claim)

    def why_it_counts(self, name: str, tier: str) -> str:
        """Why the copy of a commit on a tier stays by what is on record; empty when it may go. Raises OSError."""
        try:
            token = fence.token_of(name)
        except (ValueError, IndexError):
            return "it does not have the name of a checkpoint"
        if token > self.claim.token:
            return f"its token is newer than the newest claim's, {self.claim.token}"
        if name in self.gone or self.withdrawn(name, tier):
            return ""
        if name in self.valid:
            return "it is valid"
        return "the newest claim seals it" if name in self.claim.sealed else ""


class Remover:
    """Removes checkpoints of one training from one tier."""

    def __init__(
        self, store: Path, name: str, tier: Tier, references: References | None = None, token: Token | None = None
    ) -> None:
        """`name` is the tier's. With a token, it removes only while that is the newest claim's."""
        self._store, self._name, self._tier = store, name, tier
        self._references, self._token = references, token

    def why_it_stays(self, folder: str) -> str:
        """Why a checkpoint is not removed now; empty when it may be. Raises as `remove`."""
        records, name = Records.read(self._store), folder.rpartition("/")[2]
        if why := records.why_it_counts(name, self._name):
            return why
        reasons = holds.reasons(self._store, name, time.time())
        if not reasons and self._references:
            reasons = list(self._references(folder, self._manifest(folder)))
        return "; ".join(reasons)

    def remove(self, folder: str) -> str:
        """Remove a checkpoint, unless it stays; returns why it does, empty when it is removed.

        Raises OSError, ValueError and TierUnavailable where that cannot be read, and fence.Superseded: it stays.
        """
        if why := self.why_it_stays(folder):
            return why
        if self._token is not None:
            fence.check(self._store, self._token)
        self._tier.remove(folder)
        return ""

    def _manifest(self, folder: str) -> str:
        """The SHA-256 of the manifest on the tier; empty when there is none. Raises TierUnavailable."""
        try:
            return digest.sha256(b"".join(self._tier.read(folder, MANIFEST)))
        except DamagedCheckpoint:
            return ""
