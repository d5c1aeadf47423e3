"""Removal: the only way in which the bytes of a checkpoint leave a tier.

Retention in the control plane, a node that clears its NVMe, and the writer that removes surplus checkpoints all use
`Remover`. At the moment of each removal it reads the records again. A checkpoint stays if

- a record that the decision needs cannot be read: "could not be read" is not "there is none";
- it counts on this tier: it is valid or sealed, and no record withdraws it;
- something refers to it: the hold of a process that reads it, or one of the caller's `References`;
- the records cannot judge it: there is no commit, or the newest claim is older than its token.
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
"""The references to a checkpoint, from its folder and the SHA-256 of the manifest there ("" without one)."""
OPTIONAL = (files.SET_ASIDE, files.PRUNED, files.REPLICAS, files.WITHDRAWN)
"""Folders that exist only after their first record."""


class Unknown(OSError):
    """The records of a training are not complete enough for a removal; the message names what is missing."""


@dataclass(frozen=True)
class Records:
    """The records about the checkpoints of a training, read at one moment, all or none."""

    store: Path
    claim: Claim
    valid: frozenset[str]
    """The names of the commits that count, including those with a damaged record."""
    gone: frozenset[str]
    """The names of the commits that were set aside or pruned."""

    @classmethod
    def read(cls, store: Path) -> "Records":
        """Raises Unknown, OSError and ValueError if one cannot be read."""
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
        """Whether a record withdraws the copy of a commit on a tier. Raises OSError."""
        return tier in removals.withdrawn(self.store, name, self.claim)

    def why_it_counts(self, name: str, tier: str) -> str:
        """Why the records keep the copy of a commit on a tier; empty if it may go. Raises OSError."""
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
        """`name`: the tier's name. With a token, it removes only while the token is the newest claim's."""
        self._store = store
        self._name = name
        self._tier = tier
        self._references = references
        self._token = token

    def why_it_stays(self, folder: str) -> str:
        """Why a checkpoint must stay now; empty if it may be removed. Raises as `remove`."""
        records = Records.read(self._store)
        name = folder.rpartition("/")[2]
        why = records.why_it_counts(name, self._name)
        if why:
            return why
        reasons = holds.reasons(self._store, name, time.time())
        if not reasons and self._references:
            reasons = list(self._references(folder, self._manifest(folder)))
        return "; ".join(reasons)

    def remove(self, folder: str) -> str:
        """Remove a checkpoint unless it must stay; returns why it stays, empty if it is removed.

        Raises OSError, ValueError and TierUnavailable if the records cannot be read, and fence.Superseded; the
        checkpoint then stays.
        """
        why = self.why_it_stays(folder)
        if why:
            return why
        if self._token is not None:
            fence.check(self._store, self._token)
        self._tier.remove(folder)
        return ""

    def _manifest(self, folder: str) -> str:
        """The SHA-256 of the manifest on the tier; empty if there is none. Raises TierUnavailable."""
        try:
            return digest.sha256(b"".join(self._tier.read(folder, MANIFEST)))
        except DamagedCheckpoint:
            return ""
