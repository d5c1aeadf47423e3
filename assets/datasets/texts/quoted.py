"""Quoted items: finds documents that contain a whole item of an evaluation set, even if many documents do.

Worker processes read all texts for this, one segment at a time. The results of a segment are cached, so the next build
searches only new segments, until an evaluation set changes.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.building.build import Build
from slipway.assets.datasets.building.build_log import BuildPhase
from slipway.assets.datasets.cleaning import cleaner
from slipway.assets.datasets.cleaning.items import ItemSearch
from slipway.trainer.base import atomic, digest, parsing, regular_file

VERSION = "1"
"""The version of this code and of `ItemSearch`, raised if the same texts would give other documents."""
Quotes = list[tuple[int, int, str]]
"""The place of a document in its segment, the index of the item, and the item as the document writes it."""
MATCHES = pa.schema(
    [
        pa.field("segment", pa.string()),
        pa.field("place", pa.int64()),
        pa.field("item", pa.int64()),
        pa.field("passage", pa.string()),
    ]
)


def quoted(build: Build, items: Sequence[str], shortest: int, segments: Sequence[str]) -> pa.Table:
    """The documents of the segments that contain an item, each with its first one, as a table of `FOUND`."""
    if not ItemSearch(items, shortest):
        return MATCHES.empty_table()
    key = digest.of_bytes(atomic.canonical_json([VERSION, cleaner.VERSION, shortest, *items]))
    memory = build.folder / "items.json"
    known = _read(memory, key)
    paths = {Path(path).stem: Path(path) for path in segments}
    looked_for = build.scratch / "items.json"
    atomic.replace(looked_for, atomic.canonical_json(list(items)), build.scratch)
    fresh = [_Search(path, looked_for, shortest) for name, path in paths.items() if name not in known]
    size = sum(search.segment.stat().st_size for search in fresh)
    phase = BuildPhase(build.log, "looking for items of evaluation sets", len(fresh), "segments")
    for search, matches in zip(fresh, workers.run(_search, fresh, size), strict=True):
        known[search.segment.stem] = matches
        phase.add(1)
    if fresh or known.keys() != paths.keys():
        remaining = {name: known[name] for name in sorted(paths)}
        atomic.replace(memory, atomic.canonical_json({"key": key, "segments": remaining}), build.scratch)
    rows = [(name, *quote) for name in paths for quote in known[name]]
    return pa.Table.from_pylist([dict(zip(MATCHES.names, row, strict=True)) for row in rows], schema=MATCHES)


@dataclass(frozen=True)
class _Search:
    """One worker's task: a segment, and the items to find in it."""

    segment: Path
    items: Path
    """A file in the scratch folder, because there may be many items and every task is sent separately."""
    shortest: int


@functools.lru_cache(maxsize=1)
def _search_for(items: Path, shortest: int) -> ItemSearch:
    """The search for a build's items, made once in a process."""
    return ItemSearch(parsing.value(regular_file.read(items)), shortest)


def _search(search: _Search) -> Quotes:
    looked_for = _search_for(search.items, search.shortest)
    matches = []
    begin = 0
    with pq.ParquetFile(search.segment, pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, columns=["removed", "text"], use_threads=False)
            removed = rows["removed"].to_pylist()
            for index, reason in enumerate(removed):
                first = looked_for.first_in(rows["text"][index].as_py()) if reason is None else None
                if first is not None:
                    matches.append((begin + index, first.item, first.passage))
            begin += len(removed)
    return matches


def _read(memory: Path, key: str) -> dict[str, Quotes]:
    """The cached results for these items; empty if the file is missing, damaged, or for other items."""
    try:
        value = parsing.value(regular_file.read(memory))
        same = value["key"] == key
        if not same:
            return {}
        return {name: [(p, i, str(t)) for p, i, t in rows] for name, rows in value["segments"].items()}
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return {}
