"""The phases of a build: how far each is, and how long it will still take, as lines of a log."""

import re

import duckdb
import pytest

from slipway.assets.datasets.building import build_log
from slipway.assets.datasets.building.build_log import BYTES, BuildPhase, logged_query
from tests.conftest import until

pytestmark = pytest.mark.pure


def test_a_phase_says_how_much_is_done_and_how_long_the_rest_takes(monkeypatch):
    clock = iter([0.0, 0.0, 30.0, 30.0])
    monkeypatch.setattr("slipway.assets.datasets.building.build_log.time.monotonic", lambda: next(clock))
    lines: list[str] = []
    BuildPhase(lines.append, "encoding", 400e6, BYTES).add(100e6)
    assert lines == ["encoding: 100.0 MB of 400.0 MB (25%), 90 s left"]


def test_the_bytes_of_a_small_corpus_are_reported_in_the_unit_that_fits_them():
    lines: list[str] = []
    BuildPhase(lines.append, "reading", 41_300, BYTES).add(41_300)
    assert lines == ["reading: 41.3 kB of 41.3 kB (100%)"]
    unknown = BuildPhase(lines.append, "reading the sample", None, BYTES)
    unknown.add(640)
    assert unknown.line == "reading the sample: 640 bytes"


def test_the_end_of_a_phase_is_reported_however_soon_it_comes():
    lines: list[str] = []
    packing = BuildPhase(lines.append, "packing", 3, "documents")
    for _ in range(3):
        packing.add(1)
    assert lines[-1] == "packing: 3 of 3 documents (100%)"


def test_a_phase_of_which_nobody_knows_the_end_says_how_much_is_done(monkeypatch):
    monkeypatch.setattr(build_log, "SECONDS", 0.0)
    lines: list[str] = []
    BuildPhase(lines.append, "listing the source", None, "files").add(12_000)
    assert lines == ["listing the source: 12,000 files"]


def test_a_phase_with_nothing_to_do_is_done():
    assert BuildPhase(print, "packing", 0, "documents").line == "packing: 0 of 0 documents (100%)"


def test_a_query_says_how_far_it_is_while_it_runs(monkeypatch):
    monkeypatch.setattr(build_log, "SECONDS", 0.0)
    monkeypatch.setattr(build_log, "LOOK_SECONDS", 0.001)
    lines: list[str] = []
    with duckdb.connect() as connection:
        connection.create_function("once_told", lambda x: until(lambda: lines, "a line") and x, ["BIGINT"], "BIGINT")
        with logged_query(connection, lines.append, "comparing"):
            connection.execute("SELECT once_told(range) FROM range(2)").fetchall()
    assert lines and all(re.fullmatch(r"comparing: \d+%(, .* left)?", line) for line in lines)
