"""Verdicts: a cache of the passage that two documents share, if any, by their hashes, from one build to the next.

The comparison of two texts is a pure function of them and of the evidence, so its result can be reused. The verdicts
are in a Parquet file that duckdb searches, and only a batch of them is in memory. If the file is gone or damaged, all
candidates are compared again.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building.scratch_dir import writing
from slipway.assets.datasets.cleaning import cleaner
from slipway.resources import sql
from slipway.trainer.base import atomic, parsing, regular_file, verify

VERDICTS = pa.schema([pa.field("key", pa.string()), pa.field("passage", pa.string())])
"""One row per comparison: the hash of its inputs, and the passage, or null if there is none."""
WAITING = 16_384
"""New verdicts that are written together."""


class Verdicts:
    """The verdicts of one dataset, in the file `verdicts.parquet` of its folder; `verdicts.json` has its hash."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        """`scratch` is the dataset's scratch folder."""
        self._path = folder / "verdicts.parquet"
        self._pointer = folder / "verdicts.json"
        self._shop = scratch
        self._temporary = scratch / "verdicts.parquet"
        with writing(self._temporary):
            self._writer = pq.ParquetWriter(self._temporary, VERDICTS, compression="zstd")
        self._keys = list[str]()
        self._passages = list[str | None]()

    @property
    def known(self) -> str:
        """The verdicts of the last build as SQL: a relation with the columns of VERDICTS and distinct keys."""
        if not self._is_complete():
            return "(select null::varchar as key, null::varchar as passage where false)"
        table = f"read_parquet({sql.literal(str(self._path))})"
        return f"(select key, any_value(passage) as passage from {table} group by key)"

    def keep(self, recalled: pa.RecordBatch) -> None:
        """Keep these verdicts of the last build, with the columns of VERDICTS; all others are forgotten."""
        if recalled.num_rows:
            with writing(self._temporary):
                self._writer.write_batch(recalled)

    def note(self, key: str, passage: str | None) -> None:
        """Store the result of a comparison."""
        self._keys.append(key)
        self._passages.append(passage)
        if len(self._keys) == WAITING:
            self._write_waiting()

    def save(self) -> None:
        """Replace the verdicts of the last build with the kept and new ones."""
        self._write_waiting()
        with writing(self._temporary):
            self._writer.close()
        pointer = {"version": cleaner.VERSION, "blake3": verify.measure(self._temporary).blake3}
        # A crash between the two replacements leaves a hash that does not match, and then no verdict is known.
        atomic.move(self._temporary, self._path)
        atomic.replace(self._pointer, atomic.readable_json(pointer), self._shop)

    def _write_waiting(self) -> None:
        self.keep(pa.record_batch([pa.array(self._keys), pa.array(self._passages, pa.string())], VERDICTS))
        self._keys.clear()
        self._passages.clear()

    def _is_complete(self) -> bool:
        pointer = _read(self._pointer)
        if not isinstance(pointer, dict) or pointer.get("version") != cleaner.VERSION or not self._path.is_file():
            return False
        return verify.measure(self._path).blake3 == pointer.get("blake3")


def _read(pointer: Path) -> object:
    try:
        return parsing.value(regular_file.read(pointer))
    except (FileNotFoundError, ValueError):
        return None
