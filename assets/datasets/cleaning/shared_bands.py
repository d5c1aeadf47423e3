"""Shared bands: the bands that more than one row has, with these rows, of any number of rows in bounded memory.

Few bands of a corpus are shared, and only these lead to candidates. They are found by sorting. What does not fit the
memory waits in files, each with the bands of one range, which are spread evenly because they are hashes: all rows of a
band are in one file. Joins and groups of duckdb find them too, at a multiple of the processor time, and fail in the
memory that they may have at some ten million documents.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.building.workshop import writing
from slipway.assets.datasets.cleaning.clusters import Rows

Bands = npt.NDArray[np.uint64]
Pairs = npt.NDArray[np.uint64]
"""Bands, each with one of its rows: shape (pairs, 2)."""

IN_MEMORY = 1 << 20
"""Pairs that wait in memory: 16 MiB, and three times that while they are written."""
PARTS = 256
"""Files: a pair is in the one of the first byte of its band. Of 16 million documents each has 16 MB."""


class SharedBands:
    """The bands that were added with more than one row."""

    def __init__(self, folder: Path) -> None:
        """`folder` is where pairs wait for which there is no memory; it is made then, and is gone at the end."""
        self._folder, self._waiting, self._count = folder, list[Pairs](), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._folder.exists():
            shutil.rmtree(self._folder)

    def add(self, bands: Bands, rows: Rows) -> None:
        """Add bands, each with the row at its place. Raises OSError when the disk is full."""
        self._waiting.append(np.stack([bands, rows.astype(np.uint64)], axis=1))
        self._count += len(bands)
        if self._count > IN_MEMORY:
            self._write()

    def rows(self) -> Rows:
        """The rows that share a band with another one, ascending, each once; nothing is added after that."""
        if self._folder.exists():
            self._write()
        found, waiting, count = np.empty(0, np.int64), list[Rows](), 0
        for number, pairs in enumerate(self.parts()):
            shared = _shared(pairs)
            self._keep(number, shared)
            waiting.append(np.unique(shared[:, 1]).astype(np.int64))
            count += len(waiting[-1])
            if count > IN_MEMORY:
                found, count = np.unique(np.concatenate([found, *waiting])), 0
                waiting.clear()
        return np.unique(np.concatenate([found, *waiting]))

    def parts(self) -> Iterator[Pairs]:
        """What was added, after `rows` only the bands that are shared, in their order; all rows of a band are in one
        part."""
        if self._folder.exists():
            yield from (np.fromfile(self._path(number), np.uint64).reshape(-1, 2) for number in range(PARTS))
        else:
            yield np.concatenate([np.empty((0, 2), np.uint64), *self._waiting])

    def _keep(self, number: int, pairs: Pairs) -> None:
        """Put pairs in the place of a part."""
        if not self._folder.exists():
            self._waiting = [pairs]
            return
        with writing(self._path(number)), self._path(number).open("wb") as file:
            file.write(pairs.data)

    def _write(self) -> None:
        """Add what waits to the files."""
        self._folder.mkdir(exist_ok=True)
        pairs = np.concatenate([np.empty((0, 2), np.uint64), *self._waiting])
        self._waiting.clear()
        self._count = 0
        part = (pairs[:, 0] >> np.uint64(56)).astype(np.uint8)
        pairs, ends = pairs[np.argsort(part, kind="stable")], np.cumsum(np.bincount(part, minlength=PARTS))
        for number, some in enumerate(np.split(pairs, ends[:-1])):
            with writing(self._path(number)), self._path(number).open("ab") as file:
                file.write(some.data)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:03}"


def _shared(pairs: Pairs) -> Pairs:
    """The pairs of bands that more than one of them has, in the order of bands."""
    ordered = pairs[np.argsort(pairs[:, 0])]
    bands = ordered[:, 0]
    same = bands[1:] == bands[:-1]
    return np.asarray(ordered[np.append(False, same) | np.append(same, False)] if len(pairs) else ordered)
