"""Verdicts: whether two documents share a passage, remembered by their hashes from one build to the next.

The comparison of two texts is a pure function of them and of the evidence, so its result is kept. When the memory is
gone or damaged, all candidates are compared again.
"""

import json
from collections.abc import Callable
from pathlib import Path

from assets.datasets.cleaning import cleaner
from assets.datasets.cleaning.words import WordHashes
from trainer.base import atomic, digest


class Verdicts:
    """The verdicts of one dataset. `hash_of` gives the BLAKE3 of a document by its row."""

    def __init__(self, path: Path, hash_of: Callable[[int], str]) -> None:
        self._path, self._hash_of = path, hash_of
        self._known = _read(path)
        self._used: dict[str, bool] = {}

    def recall(self, row: int, held_out: int, evidence: WordHashes) -> bool | None:
        """Whether the documents share a passage of the evidence; None if it is not known."""
        key = self._key(row, held_out, evidence)
        if key in self._known:
            self._used[key] = self._known[key]
        return self._known.get(key)

    def note(self, row: int, held_out: int, evidence: WordHashes, shared: bool) -> None:
        self._used[self._key(row, held_out, evidence)] = shared

    def save(self, scratch: Path) -> None:
        """Write the verdicts that were recalled or noted since loading, and forget all others."""
        if self._used != self._known:
            value = {"version": cleaner.VERSION, "verdicts": self._used}
            atomic.replace(self._path, atomic.canonical_json(value), scratch)

    def _key(self, row: int, held_out: int, evidence: WordHashes) -> str:
        pair = f"{self._hash_of(row)} {self._hash_of(held_out)} ".encode()
        return digest.of_bytes(pair + evidence.tobytes())[:32]


def _read(path: Path) -> dict[str, bool]:
    try:
        value = json.loads(path.read_bytes())
        return dict(value["verdicts"]) if value["version"] == cleaner.VERSION else {}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
