"""Fuzzing of what a build of a dataset remembers: a damaged memory is none, so that the step is done again."""

import contextlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.assets.datasets.building.step_cache import StepCache
from slipway.assets.datasets.building.verified_shards import VerifiedShards
from slipway.assets.datasets.documents import extracts
from slipway.assets.datasets.texts import quoted
from slipway.trainer.data.shards import ShardFile
from tests.fuzz.test_readers import VALUES, bytes_like

FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=1000, deadline=None)
INPUTS = {"a": 1}
RECORD = {"inputs": INPUTS, "result": {"rows": 2}, "files": {"documents/x.parquet": 12}}
STATE = [12, 1, 2, 3]


def folder_of(durable: Path) -> Path:
    folder = durable / "datasets" / "texts"
    (folder / "steps").mkdir(parents=True)
    return folder


def read_step(durable: Path, data: bytes) -> None:
    folder, cache = folder_of(durable), StepCache(durable, "texts")
    cache._path("split", INPUTS).write_bytes(data)
    (folder / "steps" / "split.json").write_bytes(data)
    step_record = cache.recall("split", INPUTS)
    assert step_record is None or (step_record.inputs, step_record.files) == (INPUTS, {}), "none of its files is there"
    cache.latest("split")


def read_whole(durable: Path, data: bytes) -> None:
    (folder_of(durable) / "whole.json").write_bytes(data)
    shard = ShardFile("0" * 64, 12)
    assert not VerifiedShards(durable, "texts").has(shard)


def read_quoted(durable: Path, data: bytes) -> None:
    file = durable / "quoted.json"
    file.write_bytes(data)
    assert all(len(row) == 3 for rows in quoted._read(file, "k").values() for row in rows)


def read_extracts(durable: Path, data: bytes) -> None:
    (folder_of(durable) / "extracts.json").write_bytes(data)
    assert list(extracts.KnownFiles(durable, "texts", "k")) == []
    index = durable / "datasets" / "texts" / "extracts" / "x.parquet"
    index.parent.mkdir()
    index.write_bytes(data)
    with contextlib.suppress(ValueError):
        assert extracts.newest(durable, "texts").parent == index.parent
    assert list(extracts.KnownFiles(durable, "texts", "k")) == []


CACHES: dict[str, tuple[Callable[[Path, bytes], None], st.SearchStrategy[bytes]]] = {
    "step cache": (read_step, bytes_like(RECORD)),
    "whole shards": (read_whole, bytes_like({"0" * 64: STATE})),
    "passages": (read_quoted, bytes_like({"key": "k", "segments": {"s": [[0, 1, "b"]]}})),
    "index of extracts": (read_extracts, bytes_like({"index": "x.parquet"})),
}


def fuzzed(name: str, strength: settings) -> None:
    read, data = CACHES[name]

    def check(written: bytes) -> None:
        with tempfile.TemporaryDirectory() as durable:
            read(Path(durable), written)

    strength(given(data | VALUES.map(lambda value: json.dumps(value).encode()))(check))()


@pytest.mark.parametrize("name", CACHES)
def test_a_damaged_memory_of_a_build_is_none(name: str):
    fuzzed(name, FEW)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CACHES)
def test_a_damaged_memory_of_a_build_is_none_for_thousands(name: str):
    fuzzed(name, MANY)
