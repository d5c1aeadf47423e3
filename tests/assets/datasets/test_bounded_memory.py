"""Memory: a build stays within its bound for a corpus that is several times larger than the bound."""

import gzip
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import quiet
from slipway.assets.datasets.documents import extraction, extracts
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.texts import segments
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.assets.datasets.texts.segments import TextPlace
from slipway.trainer.base import processes
from tests.assets.datasets.corpora import recipe_for, write_file
from tests.assets.datasets.forked import Settings, forker

MB = 1_000_000
CORPUS_MB = 900
BOUND_MB = 300
"""The memory of any process of a build in addition to `CODE_MB`, with `DUCKDB_MEMORY`."""
CODE_MB = 60
"""The memory of a process that has only imported the code of a build."""
DUCKDB_MEMORY = "128MB"
SHORT_DOCUMENTS = 600_000
"""More than `document_table.parts` takes at a time, so that a larger number takes no more memory."""


class Texts:
    """Texts of words whose frequency falls with their number."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        self._vocabulary = np.array(
            ["".join(self._random.choice(letters, length)) for length in 2 + np.arange(20_000) % 8]
        )

    def some(self, count: int, length: int = 350) -> list[str]:
        """So many texts; 350 words are about 2 kB."""
        return [
            " ".join(self._vocabulary[(20_000 * self._random.random(length) ** 3).astype(int)]) for _ in range(count)
        ]


def write_corpus(folder: Path, megabytes: int) -> None:
    """A third each of compressed lines, of plain texts of 200 kB, and of rows of Parquet."""
    folder.mkdir()
    texts = Texts()

    def lines(path: Path) -> int:
        some = texts.some(4000)
        with gzip.open(path.with_suffix(".jsonl.gz"), "wt", compresslevel=1) as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in some)
        return sum(map(len, some))

    def plain(path: Path) -> int:
        return path.with_suffix(".txt").write_text("\n".join(texts.some(100)))

    def rows(path: Path) -> int:
        some = texts.some(10_000)
        pq.write_table(pa.table({"text": some}), path.with_suffix(".parquet"), row_group_size=2000)
        return sum(map(len, some))

    for write in (lines, plain, rows):
        fill(write, folder, megabytes * MB // 3)


def write_short_documents(folder: Path, count: int, in_a_file: int = 20_000) -> None:
    """Lines of 12 words each."""
    texts = Texts()
    for number in range(count // in_a_file):
        some = texts.some(in_a_file, length=12)
        write_file(folder / f"{number}.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in some))


def fill(write: Callable[[Path], int], folder: Path, size: int) -> None:
    number = 0
    while size > 0:
        size -= write(folder / f"{write.__name__}{number}")
        number += 1


def memory_of_processes(pid: int) -> Iterator[tuple[bool, float]]:
    """The memory in MB of a process (True) and of those below it (False), again and again until it ends."""
    while memory := _memory(pid):
        yield True, memory
        yield from ((False, _memory(worker)) for worker in processes.descendants(pid))
        time.sleep(0.02)


def _memory(pid: int) -> float:
    """RssAnon of /proc/PID/status: mapped files are the page cache's. 0 for a process that has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 / MB for line in lines if line.startswith("RssAnon"))


def peak_of_a_build(folder: Path, cleaning: dict[str, Any]) -> tuple[float, float]:
    """The peak in MB of the process that builds from the corpus in the folder, and of its largest worker."""
    recipe = recipe_for(
        folder / "corpus",
        validation=0.005,
        shard_tokens=1_000_000,
        cleaning=cleaning,
        tokenizer={"vocab_size": 4096, "megabytes": 5.0},
    )
    peaks = {True: 0.0, False: 0.0}
    with forker() as builds:
        settings: Settings = {"documents.document_table.MEMORY": DUCKDB_MEMORY, "documents.document_table.THREADS": 1}
        for itself, memory in memory_of_processes(builds.start(recipe, folder / "durable", settings)):
            peaks[itself] = max(peaks[itself], memory)
        assert builds.status() == 0
    return peaks[True], peaks[False]


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_corpus_several_times_larger_than_the_bound_is_built_within_it(tmp_path):
    write_corpus(tmp_path / "corpus", CORPUS_MB)
    builder, worker = peak_of_a_build(tmp_path, cleaning={})
    assert CODE_MB < worker < CODE_MB + BOUND_MB
    assert CODE_MB < builder < CODE_MB + BOUND_MB
    assert CORPUS_MB >= 3 * BOUND_MB


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_many_short_documents_are_built_within_the_same_bound(tmp_path):
    write_short_documents(tmp_path / "corpus", SHORT_DOCUMENTS)
    # Nine tenths of the time would be their features, which nothing of this test needs.
    builder, worker = peak_of_a_build(tmp_path, cleaning={"near_duplicates": None, "decontamination": None})
    assert CODE_MB < worker < CODE_MB + BOUND_MB
    assert CODE_MB < builder < CODE_MB + BOUND_MB


def test_a_segments_texts_are_read_a_row_group_at_a_time(tmp_path, durable):
    for number in range(10):
        write_file(tmp_path / "corpus" / f"{number}.txt", f"{number} some words\n" * 50_000)
    recipe = recipe_for(tmp_path / "corpus", reading={"whole_megabytes": None})
    with begin_build(recipe, TEXT_DOCUMENTS, durable, quiet) as build:
        extracted = extraction.extract(build, sources.list_source(recipe))
    [segment] = extracts.segments(extracted.index, durable)
    extracted = pq.read_table(segment, columns=["file", "number", "blake3"])
    text_places = [TextPlace(**row) for row in extracted.to_pylist()]
    before, allocated, sizes = pa.total_allocated_bytes(), [], []
    for _, text in segments.texts(segment, text_places):
        allocated.append(pa.total_allocated_bytes() - before)
        sizes.append(len(text))
    assert len(sizes) == 10
    assert max(allocated) < extraction.ROW_GROUP_BYTES + 2 * max(sizes) < sum(sizes)
