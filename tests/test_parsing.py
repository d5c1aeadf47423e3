"""Parsing: whatever is no JSON is one kind of error, and every reader asks the one place that makes it so."""

import ast
import json
import zlib
from pathlib import Path

import pytest

from slipway.trainer.base import journal, parsing

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[1]
ROOMS = ("trainer", "resources", "assets", "operations", "sensors", "serving", "recipes")
DEEP = b"[" * 200_000


@pytest.mark.parametrize("data", [b"", b"{", b'"\xff"', DEEP, b'{"a":' * 100_000, b"1" * 5000, "\ud800", b"nul"])
def test_what_is_no_json_is_one_kind_of_error(data: bytes | str):
    with pytest.raises(json.JSONDecodeError):
        parsing.value(data)


@pytest.mark.parametrize(("begin", "end", "sections"), [("[", "]", 1), ('{"a":', "}", 1), ('[{"a":', "}]", 2)])
def test_sections_that_end_are_read_down_to_one_depth_however_deep_the_reader_stands(
    begin: str, end: str, sections: int
):
    def read(depth: int, below: int) -> object:
        if below:
            return read(depth, below - 1)
        text = begin * (depth // sections) + "1" + end * (depth // sections)
        assert parsing.value(text) == parsing.value(text.encode())
        return parsing.value(text)

    for below in (0, 300):
        repr(read(parsing.DEEPEST, below))
        with pytest.raises(json.JSONDecodeError, match="found more than 200 sections within one another"):
            read(parsing.DEEPEST + sections, below)


def test_many_sections_beside_one_another_are_not_deep():
    assert len(parsing.value(b"[" + b",".join([b'[{"a": []}]'] * 1000) + b"]")) == 1000


def test_what_is_json_is_its_value():
    assert parsing.value(b'{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


def test_a_line_whose_checksum_is_right_and_that_is_no_event_is_damaged_and_costs_no_other(tmp_path: Path):
    path = tmp_path / "ledger"
    good = [journal.frame({"event": "step", "step": n}) for n in range(2)]
    bad = [b"%b\t%08x\n" % (text, zlib.crc32(text)) for text in (DEEP, b"1" * 5000, b"7", b"{")]
    path.write_bytes(good[0] + b"".join(bad) + good[1])
    reading = journal.read(path)
    assert ([event["step"] for event in reading.events], reading.damaged) == ([0, 1], 4)
    assert [journal.parse(line.rstrip(b"\n")) for line in bad] == [None] * 4


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_that_reads_calls_pythons_parser_itself(room: str):
    calls = [
        f"{file.relative_to(ROOT)}:{node.lineno}"
        for file in (ROOT / room).rglob("*.py")
        if file != ROOT / "trainer" / "base" / "parsing.py" and "json" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("load", "loads")
        if isinstance(node.value, ast.Name) and node.value.id == "json"
    ]
    assert calls == [], "parsing.value gives one kind of error"
