"""Journals: a crash costs at most the event that was being written, and damage is recognised."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipway.trainer.base import journal
from slipway.trainer.base.journal import Journal, JournalEvent

pytestmark = pytest.mark.pure

EVENTS: list[JournalEvent] = [
    {"event": "step", "step": 1},
    {"event": "words", "text": "é\t\n\\"},
    {"event": "step", "step": 3},
]
LINES = [journal.frame(event) for event in EVENTS]
JOURNAL = b"".join(LINES)
BOUNDARIES = [len(b"".join(LINES[:count])) for count in range(len(LINES) + 1)]

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def write(path: Path, *events: JournalEvent) -> None:
    with Journal(path) as log:
        for event in events:
            log.append(event)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_event_takes_one_line_and_reads_back(event: JournalEvent) -> None:
    line = journal.frame(event)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert journal.parse(line[:-1]) == event


def test_a_journal_reads_back_in_order(tmp_path: Path) -> None:
    write(tmp_path / "log", *EVENTS)
    assert journal.read(tmp_path / "log") == journal.JournalReading(EVENTS, 0, len(JOURNAL))


def test_an_absent_journal_is_empty(tmp_path: Path) -> None:
    assert journal.read(tmp_path / "log") == journal.JournalReading([], 0, 0)


def test_events_appended_together_are_all_there(tmp_path: Path) -> None:
    with Journal(tmp_path / "log") as log:
        log.append(*EVENTS)
    assert journal.read(tmp_path / "log").events == EVENTS


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_event_with_no_number_is_refused_and_nothing_is_written(tmp_path: Path, value: float) -> None:
    with Journal(tmp_path / "log") as log:
        log.append(EVENTS[0])
        with pytest.raises(ValueError):
            log.append({"event": "step", "loss": value})
        log.append(EVENTS[2])
    assert journal.read(tmp_path / "log") == journal.JournalReading([EVENTS[0], EVENTS[2]], 0, len(LINES[0] + LINES[2]))


def test_a_crash_at_any_byte_costs_at_most_the_event_being_written(tmp_path: Path) -> None:
    for cut in range(len(JOURNAL) + 1):
        path = tmp_path / f"{cut}"
        path.write_bytes(JOURNAL[:cut])
        complete = JOURNAL[:cut].count(b"\n")
        assert journal.read(path).events == EVENTS[:complete]
        write(path, {"event": "after"})
        # A line that lacks its newline alone was written in full, and is kept.
        n_events = complete + (JOURNAL[cut : cut + 1] == b"\n")
        torn = cut not in BOUNDARIES and n_events == complete
        reading = journal.read(path)
        assert (reading.events, reading.damaged) == ([*EVENTS[:n_events], {"event": "after"}], int(torn))


def test_a_torn_tail_is_left_for_the_next_reading(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(JOURNAL[:-1])
    first = journal.read(path)
    assert (first.events, first.damaged) == (EVENTS[:2], 0)
    path.write_bytes(JOURNAL)
    assert journal.read(path, first.offset) == journal.JournalReading(EVENTS[2:], 0, len(JOURNAL))


def test_reading_from_an_offset_yields_what_is_new_and_only_once(tmp_path: Path) -> None:
    path, offset, events = tmp_path / "log", 0, []
    for event in EVENTS:
        write(path, event)
        reading = journal.read(path, offset)
        events += reading.events
        offset = reading.offset
    assert events == EVENTS
    assert journal.read(path, offset).events == []


def test_a_flipped_bit_costs_its_own_line_and_is_counted(tmp_path: Path) -> None:
    path, size = tmp_path / "log", len(LINES[1]) - 1
    for bit in range(8 * size):
        line = bytearray(LINES[1])
        line[bit // 8] ^= 1 << bit % 8
        path.write_bytes(LINES[0] + bytes(line) + LINES[2])
        reading = journal.read(path)
        assert reading.events == [EVENTS[0], EVENTS[2]]
        assert reading.damaged >= 1


def test_a_flipped_newline_costs_the_two_lines_it_stood_between(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(LINES[0] + LINES[1][:-1] + b"\x0b" + LINES[2] + LINES[0])
    assert journal.read(path).events == [EVENTS[0], EVENTS[0]]
    assert journal.read(path).damaged == 1


def test_a_reading_in_parts_has_every_event_once_however_long_its_line(tmp_path: Path):
    path, written = tmp_path / "journal", [{"n": n, "text": "x" * (500 if n == 3 else 5)} for n in range(8)]
    with journal.Journal(path) as log:
        log.append(*written)
    events, offset, sizes = [], 0, []
    while (reading := journal.read(path, offset, at_most=50)).offset != offset:
        events += reading.events
        sizes.append(reading.offset - offset)
        offset = reading.offset
    assert events == written and offset == path.stat().st_size
    assert len(sizes) > 2 and max(sizes) > 500
