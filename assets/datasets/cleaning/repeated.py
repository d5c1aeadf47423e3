"""Repeated hashes: those that a long stream of 64-bit hashes has more than once, in bounded memory.

Few hashes of a corpus are, and only these lead to candidates. duckdb's GROUP BY finds them too, at seven times the
processor time of sorting them; so they are sorted. What does not fit the memory waits in files, each with the hashes of
one range, which are spread evenly because they are hashes.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from assets.datasets.building.workshop import writing

Hashes = npt.NDArray[np.uint64]

IN_MEMORY = 1 << 22
"""Hashes that wait in memory: 32 MiB, and twice that while they are sorted."""
PARTS = 64
"""Files: a hash is in the one of its first bits."""


class RepeatedHashes:
    """The hashes that were added more than once."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where hashes wait for which there is no memory; it is made then, and is gone at the end."""
        self._folder, self._waiting, self._count = folder, list[Hashes](), 0

    def add(self, hashes: Hashes) -> None:
        """Add some hashes, of which any may be equal."""
        self._waiting.append(hashes)
        self._count += len(hashes)
        if self._count > IN_MEMORY:
            self._write()

    def found(self) -> Iterator[Hashes]:
        """Those that were added more than once, each once, some at a time; nothing is added after that."""
        if not self._folder.exists():
            yield _repeated(self._sorted())
            return
        self._write()
        for path in sorted(self._folder.iterdir()):
            yield _repeated(np.sort(np.fromfile(path, np.uint64)))
            path.unlink()
        self._folder.rmdir()

    def _sorted(self) -> Hashes:
        """All that wait, of each hash two at most: more say no more, and could be too many for a part."""
        waiting = np.sort(np.concatenate([np.empty(0, np.uint64), *self._waiting]))
        self._waiting.clear()
        self._count = 0
        return np.asarray(waiting[np.append([True, True], waiting[2:] != waiting[:-2])[: len(waiting)]])

    def _write(self) -> None:
        """Write what waits to the files."""
        self._folder.mkdir(exist_ok=True)
        hashes = self._sorted()
        bounds = np.arange(1, PARTS, dtype=np.uint64) * np.uint64(2**64 // PARTS)
        for number, part in enumerate(np.split(hashes, np.searchsorted(hashes, bounds))):
            path = self._folder / f"{number:02}"
            with writing(path), path.open("ab") as file:
                file.write(part.data)


def _repeated(hashes: Hashes) -> Hashes:
    """The values that sorted hashes have more than once, each once."""
    again = np.append([False], hashes[1:] == hashes[:-1])[: len(hashes)]
    return np.asarray(hashes[again & ~np.append([False], again[:-1])[: len(hashes)]])
