"""Signature file: the signatures of the rows that have a candidate, of which some thousand are read at a time.

They are 448 bytes each, more than all else that is known of a row; so they wait on disk, in the order in which they
come, and are read by their place. A join of duckdb that carries them needs more memory than it may have from some
millions of rows on.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from slipway.assets.datasets.building.workshop import writing
from slipway.assets.datasets.cleaning import minhash
from slipway.assets.datasets.cleaning.clusters import Places, Rows

BYTES = minhash.PERMUTATIONS * np.dtype(np.uint32).itemsize


class SignatureFile:
    """The signatures of some rows; memory holds 8 bytes for each."""

    def __init__(self, path: Path, rows: Rows, batches: Iterable[pa.RecordBatch]) -> None:
        """`path` is where the file is until this is closed; `rows` are ascending, each once, and `batches` have each
        of them once, in any order, with the columns `row` and `signature`. Raises OSError when the disk is full."""
        self._path, self._rows = path, rows
        self._places: Places = np.empty(len(rows), np.int64)
        count = 0
        with writing(path), path.open("wb") as file:
            for batch in batches:
                self._places[np.searchsorted(rows, batch["row"].to_numpy())] = count + np.arange(batch.num_rows)
                count += batch.num_rows
                file.write(b"".join(batch["signature"].to_pylist()))
        assert count == len(rows), f"found {count} signatures, expected those of {len(rows)} rows"
        self._file = path.open("rb", buffering=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        self._path.unlink()

    def of(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """The signatures of rows, of which any may be equal: shape (len(rows), PERMUTATIONS)."""
        wanted, which = np.unique(rows, return_inverse=True)
        places = self._places[np.searchsorted(self._rows, wanted)].tolist()
        # Not mapped: what is read of a mapping counts as memory of the process for as long as it is there.
        read = b"".join([os.pread(self._file.fileno(), BYTES, place * BYTES) for place in places])
        return np.frombuffer(read, np.uint32).reshape(-1, minhash.PERMUTATIONS)[which]
