"""The record of a course of faults: it is read line by line, and a damaged line is named."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from slipway.operations.chaos import course
from slipway.operations.chaos.course import Injection
from slipway.trainer.base.codec import UndecodableRecord

DONE = Injection("rank-killed", "tiny-0", 1, "rank 0 on node-0 was killed", "node-0", 12.5, 3)


def test_what_was_done_is_read_back(tmp_path: Path):
    record = tmp_path / "course.jsonl"
    record.write_text(json.dumps(asdict(DONE)) + "\n")
    assert course.read(record) == [DONE]


@pytest.mark.parametrize("line", ["{", "[1]", '{"fault": "rank-killed"}', '{"no": "such field"}'])
def test_a_damaged_line_is_named_with_its_number(tmp_path: Path, line: str):
    record = tmp_path / "course.jsonl"
    record.write_text(f"{json.dumps(asdict(DONE))}\n{line}\n")
    with pytest.raises(UndecodableRecord, match=r"course\.jsonl, line 2:"):
        course.read(record)
