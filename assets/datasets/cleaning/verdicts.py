"""Verdicts: the passage that two documents share, if any, remembered by their hashes from one build to the next.

The comparison of two texts is a pure function of them and of the evidence, so its result is kept. When the memory is
gone or damaged, all candidates are compared again.
"""

from collections.abc import Callable
from pathlib import Path

from assets.datasets.cleaning import cleaner
from assets.datasets.cleaning.decontamination import Comparison
from assets.datasets.cleaning.words import WordHashes
from trainer.base import atomic, digest, parsing


class Verdicts:
    """The verdicts of one dataset. `hash_of` gives the BLAKE3 of a document by its row."""

    def __init__(self, path: Path, hash_of: Callable[[int], str]) -> None:
        self._path, self._hash_of = path, hash_of
        self._known = _read(path)
        self._used: dict[str, str | None] = {}

    def recall(self, row: int, held_out: int, evidence: WordHashes) -> Comparison | None:
        """The result for the documents and the evidence; None if it is not known."""
        key = self._key(row, held_out, evidence)
        if key not in self._known:
            return None
        self._used[key] = self._known[key]
        return Comparison(self._known[key])

    def note(self, row: int, held_out: int, evidence: WordHashes, result: Comparison) -> None:
        """Remember a result."""
        self._used[self._key(row, held_out, evidence)] = result.passage

    def save(self, scratch: Path) -> None:
        """Write the verdicts that were recalled or noted since loading, and forget all others."""
        if self._used != self._known:
            value = {"version": cleaner.VERSION, "passages": self._used}
            atomic.replace(self._path, atomic.canonical_json(value), scratch)

    def _key(self, row: int, held_out: int, evidence: WordHashes) -> str:
        pair = f"{self._hash_of(row)} {self._hash_of(held_out)} ".encode()
        return digest.of_bytes(pair + evidence.tobytes())[:32]


def _read(path: Path) -> dict[str, str | None]:
    try:
        value = parsing.value(path.read_bytes())
        return dict(value["passages"]) if value["version"] == cleaner.VERSION else {}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
