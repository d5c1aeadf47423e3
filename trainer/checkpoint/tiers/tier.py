"""A tier: a place that holds checkpoints, behind one interface, whether it is a folder or an object store.

A checkpoint is on a tier whole or not at all: its files are put first, and its manifest makes it visible.
"""

from collections.abc import Iterator
from typing import Protocol

from slipway.trainer.checkpoint.disk.manifest import CheckpointFile

NVME = "nvme"
DURABLE = "durable"
BACKUP = "backup"
LASTING = frozenset((DURABLE, BACKUP))
"""The tiers that outlive every node."""
TIERS = (NVME, DURABLE, BACKUP)
"""The fastest first: a save that is due on several tiers is written to the fastest, and copied from there."""


class TierUnavailable(Exception):
    """A tier cannot take or give a file (full, read-only, away); the message names the tier and the reason."""


class TierSource(Protocol):
    """A place where checkpoints can be read. A file is named by its checkpoint's folder and its own name."""

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        """A file's bytes, not verified. Raises DamagedCheckpoint if it is missing, and TierUnavailable."""


class Tier(TierSource, Protocol):
    """Holds checkpoints by the names of their folders. Every method raises TierUnavailable."""

    def put(self, folder: str, name: str, chunks: Iterator[bytes], expected: CheckpointFile) -> None:
        """Write one file of a checkpoint that is not visible yet; `expected` is its entry in the manifest.

        Several processes may put files of one checkpoint. An error that `chunks` raises leaves no file.
        """

    def amend(self, folder: str, name: str, data: bytes) -> None:
        """Write or replace a small file of a visible checkpoint that its manifest does not list."""

    def finish(self, folder: str, manifest: bytes) -> None:
        """Make the checkpoint visible, after all of its files are put; a second call changes nothing."""

    def holds(self, folder: str) -> bool:
        """Whether the checkpoint is visible on this tier."""

    def remove(self, folder: str) -> None:
        """Remove all files of the checkpoint, if the tier has any."""

    def folders(self, under: str) -> dict[str, float]:
        """The visible checkpoints whose names begin with `under` and a slash, each with the time of its manifest."""

    def unfinished(self, under: str) -> list[str]:
        """Checkpoints that have files and are not visible: in writing, or abandoned by a killed writer."""
