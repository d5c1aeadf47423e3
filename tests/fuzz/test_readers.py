"""Fuzzing: whatever bytes others write, a reader gives a value or its clear error; no path leaves a folder."""

import json
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.assets.sweeps import events
from slipway.assets.sweeps.state import fold
from slipway.trainer.base import codec, digest
from slipway.trainer.checkpoint.disk import manifest
from slipway.trainer.data import shards
from slipway.trainer.record import fence

FEW = settings(max_examples=60, deadline=None)
MANY = settings(max_examples=5000, deadline=None)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["../out", "/etc/x", "a/../../b", "", ".", "a//b", "a\0b", "weights.safetensors", "dagster/runs.db"]
)
MANIFEST = {"format": manifest.FORMAT, "layout": "chunks/2", "files": {"a": {"bytes": 1, "blake3": "0" * 64}}}
TENSOR = {"dtype": "F32", "shape": [1], "chunks": [{"offsets": [0], "sizes": [1], "file": "a", "begin": 0}]}
SNAPSHOT = {
    "format": shards.FORMAT,
    "splits": {"train": {"shards": [{"blake3": "0" * 64}]}},
    "tokenizer": {"sha256": "0" * 64},
}
CLAIM = {"format": "slipway.fence/1", "step": 1, "folder": "x"}
SWEEP_LOG = [
    {
        "event": "opened", "at": 1.0, "format": "slipway.sweep-log/2", "sweep": "s-1", "recipe": "r", "space": {},
        "sampler": "random", "seed": 0, "steps": 20,
        "scheduler": {"kind": "stopping", "rungs": [10, 20], "eta": 2, "noise": None},
    },
    {
        "event": "budgeted", "at": 1.0, "trials": 2, "parallel": 1, "retries": 1, "failed_trials": 1,
        "by": events.RECIPE,
    },
    {"event": "proposed", "at": 1.0, "trial": 0, "parameters": {}, "until": 20},
    {"event": "reported", "at": 1.0, "trial": 0, "step": 10, "value": 1.0},
    {"event": "ended", "at": 1.0, "trial": 0, "outcome": "completed", "value": 1.0, "reason": ""},
]  # fmt: skip


def damaged(value: Any) -> st.SearchStrategy[Any]:
    """A JSON value with one of its parts replaced by another value, or missing."""
    positions: list[Any] = (
        sorted(value) if isinstance(value, dict) else list(range(len(value) if _is_list(value) else 0))
    )
    if not positions:
        return VALUES
    position = st.sampled_from(positions)
    return position.flatmap(lambda at: damaged(value[at]).map(lambda new: _with(value, at, [new]))) | position.map(
        lambda at: _with(value, at, [])
    )


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _with(value: Any, at: Any, new: list[Any]) -> Any:
    """The section or list with the part at a place replaced, or without it."""
    if isinstance(value, dict):
        return {name: part for name, part in value.items() if name != at} | dict(zip([at], new, strict=False))
    return [*value[:at], *new, *value[at + 1 :]]


def as_bytes(value: object) -> bytes:
    return json.dumps(value).encode()


def bytes_like(value: object) -> st.SearchStrategy[bytes]:
    """Bytes at random, and those of a value that was damaged."""
    return st.binary(max_size=64) | damaged(value).map(as_bytes)


def gives_or_refuses(read: Callable[[], object]) -> None:
    """No other error than the clear one."""
    try:
        read()
    except ValueError as error:
        assert str(error)


def read_manifest(data: bytes) -> None:
    gives_or_refuses(lambda: manifest.decode(data))


def read_snapshot(data: bytes) -> None:
    gives_or_refuses(lambda: shards.parse_manifest(data, digest.sha256(data), "snapshots/x.json"))


def read_record(data: bytes) -> None:
    gives_or_refuses(lambda: codec.decode(fence.Commit, data, "commits/x.json", "slipway.fence/1"))


READERS = {
    "checkpoint manifest": (read_manifest, bytes_like({**MANIFEST, "tensors": {"t": TENSOR}})),
    "snapshot manifest": (read_snapshot, bytes_like(SNAPSHOT)),
    "record": (read_record, bytes_like(CLAIM)),
}


def fuzzed(name: str, strength: settings) -> None:
    read, data = READERS[name]
    strength(given(data)(read))()


@pytest.mark.parametrize("name", READERS)
def test_a_reader_gives_a_value_or_its_clear_error(name: str):
    fuzzed(name, FEW)


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_a_reader_gives_a_value_or_its_clear_error_for_thousands(name: str):
    fuzzed(name, MANY)


@FEW
@given(NAMES)
def test_no_name_in_a_manifest_leads_out_of_its_folder(name: str):
    data = as_bytes({**MANIFEST, "files": {name: {"bytes": 1, "blake3": "0" * 64}}})
    try:
        [file_name] = manifest.decode(data).files
    except ValueError as error:
        assert "expected a name below the manifest's folder" in str(error)
    else:
        assert not PurePosixPath(file_name).is_absolute() and ".." not in file_name.split("/")


@pytest.mark.parametrize("read", [read_manifest, read_snapshot, read_record])
def test_sections_within_sections_without_an_end_are_refused(read: Callable[[bytes], None]):
    read(b"[" * 200_000)


def test_a_log_that_lost_a_line_is_refused_and_ends_nothing():
    fold([events.parse(event) for event in SWEEP_LOG])
    with pytest.raises(ValueError, match="sweep log: found the event Reported"):
        fold([events.parse(event) for event in SWEEP_LOG if event["event"] != "proposed"])
