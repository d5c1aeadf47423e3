"""Fuzzing: notes of ours that others may write over: the state of a tier, and what was sent of an object."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.resources import state
from slipway.resources.serving import cluster
from tests.fuzz.test_readers import FEW, MANY, bytes_like, gives_or_refuses

pytestmark = pytest.mark.pure

SPEC = {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}


def read_state(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, state.FILE).write_bytes(data)
        gives_or_refuses(lambda: state.refuse_newer(Path(folder)))


def read_note(data: bytes) -> None:
    note = data.decode(errors="replace")
    applied = {"metadata": {"name": "c", "annotations": {cluster.APPLIED: note}}, "spec": {}}
    change = cluster.change_of(applied, {"metadata": {"name": "c"}, "spec": SPEC})
    assert not change or change["metadata"]["annotations"][cluster.APPLIED]


READERS: dict[str, tuple[Any, st.SearchStrategy[bytes]]] = {
    "state of a tier": (read_state, bytes_like({"state": 2, "version": "0.2", "at": 1.5})),
    "note on an object": (read_note, bytes_like(SPEC)),
}


@pytest.mark.parametrize("name", READERS)
def test_a_note_is_read_refused_or_counts_as_none(name: str):
    read, data = READERS[name]
    FEW(given(data)(read))()


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_a_note_is_read_refused_or_counts_as_none_for_thousands(name: str):
    read, data = READERS[name]
    MANY(given(data)(read))()


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 400])
def test_a_number_without_an_end_is_no_state(tmp_path: Path, number: bytes):
    (tmp_path / state.FILE).write_bytes(b'{"state": 2, "version": "0.2", "at": ' + number + b"}")
    gives_or_refuses(lambda: state.state_of(tmp_path))
    (tmp_path / state.FILE).write_bytes(b'{"state": ' + number + b', "version": "0.2"}')
    with pytest.raises(ValueError, match=r"found (no state|state 1{400})"):
        state.refuse_newer(tmp_path)
