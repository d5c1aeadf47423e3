"""Faults of copies: what went wrong with a checkpoint on a tier, for the people who look at the checkpoint.

Whoever meets a fault notes it once: a copy that is damaged, a tier that a start had to wait for, a copy that a tier did
not take. The control plane shows each on the checkpoint. A note decides nothing.

    faults/<commit>.<tier>.<kind>.json
"""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import codec, listing
from slipway.trainer.record import files

FORMAT = "slipway.copy-fault/1"
DAMAGED, AWAY, NOT_COPIED = "damaged", "away", "not-copied"


@dataclass(frozen=True)
class CopyFault:
    """What went wrong with the copy of a commit on a tier, the first time."""

    commit: str
    tier: str
    kind: str
    reason: str
    at: float

    @property
    def name(self) -> str:
        return f"{self.commit}.{self.tier}.{self.kind}"


def note(store: Path, commit: str, tier: str, kind: str, reason: str) -> None:
    """Note a fault, unless it was noted before. On a store that cannot be written only the note is lost."""
    fault = CopyFault(commit, tier, kind, reason, time.time())
    with contextlib.suppress(OSError):
        codec.create_only(files.named(store, files.FAULTS, fault.name), fault, FORMAT)


def noted(store: Path) -> list[CopyFault]:
    """The faults that were noted. One that cannot be decoded is left out. Raises OSError."""
    found = []
    for name in listing.names_if_there(store / files.FAULTS, ".json"):
        with contextlib.suppress(codec.UndecodableRecord, FileNotFoundError):
            found.append(codec.read(files.named(store, files.FAULTS, name), CopyFault, FORMAT))
    return found


def forget(store: Path, commit: str, tier: str, kind: str) -> None:
    """The fault is past: the next one is noted anew. Raises OSError."""
    files.named(store, files.FAULTS, f"{commit}.{tier}.{kind}").unlink(missing_ok=True)
