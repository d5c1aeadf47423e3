"""Numbered logs: a record that was lost names itself, and its number is not given again."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from slipway.trainer.record import changes, files, grants, incarnation_exit, numbered
from slipway.trainer.record.incarnation_exit import Exit

pytestmark = pytest.mark.pure

FORMAT = "slipway.test/1"


@dataclass(frozen=True)
class Line:
    """A record of a log."""

    text: str


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of three records."""
    for number in (1, 2, 3):
        assert numbered.add(tmp_path / "log", number, Line(f"line {number}"), FORMAT)
    return tmp_path / "log"


def lose(log: Path, number: int, *suffixes: str) -> None:
    for suffix in suffixes or ("json", "copy"):
        (log / f"{number:06d}.{suffix}").unlink()


def texts_of(log: Path, least: int = 0) -> list[str]:
    return [line.text for line in numbered.read_all(log, Line, FORMAT, least)]


def test_a_log_that_nobody_wrote_has_no_records(tmp_path: Path):
    assert (texts_of(tmp_path / "log"), numbered.newest(tmp_path / "log")) == ([], 0)


@pytest.mark.parametrize("number", [1, 2])
def test_a_record_that_was_lost_is_an_error_that_names_it(log: Path, number: int):
    lose(log, number)
    with pytest.raises(numbered.LostRecord, match=rf"log: found no 00000{number}\.json, which the log had: restore it"):
        texts_of(log)


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("harm", ["lost", "damaged"])
def test_one_of_the_two_files_of_a_record_may_be_lost_or_damaged(log: Path, number: int, harm: str):
    path = numbered.path(log, number)
    path.unlink() if harm == "lost" else path.write_bytes(b"rust")
    assert texts_of(log) == ["line 1", "line 2", "line 3"]
    assert not numbered.add(log, number, Line("another"), FORMAT)
    assert texts_of(log) == ["line 1", "line 2", "line 3"]


def test_a_newest_record_that_was_lost_with_its_copy_is_missed_by_who_knows_how_many_there_were(log: Path):
    lose(log, 3)
    assert texts_of(log) == ["line 1", "line 2"]
    with pytest.raises(numbered.LostRecord) as missed:
        texts_of(log, least=4)
    assert missed.value.lost == (3, 4)


def test_a_grant_a_change_and_an_end_hold_while_one_of_their_files_is_left(tmp_path: Path):
    grants.grant(tmp_path, 10, "a test")
    changes.propose(tmp_path, {"run.steps": 7}, "a test", "why not")
    incarnation_exit.create(tmp_path, Exit(1, incarnation_exit.SUCCEEDED, "", 7, "a test", 0.0))
    for folder in (files.GRANTS, files.CHANGES, files.EXITS):
        lose(tmp_path / folder, 1, "json")
    newest_grant = grants.newest(tmp_path)
    assert newest_grant is not None and newest_grant.until == 10
    assert changes.read(tmp_path, changes.numbers(tmp_path)[0]).fields == {"run.steps": 7}
    assert incarnation_exit.succeeded(tmp_path, 1)
    assert not incarnation_exit.create(tmp_path, Exit(1, "failed", "", 7, "another", 0.0)), "it has ended"
    assert grants.grant(tmp_path, 20, "a test").until == 20


def test_a_change_that_was_lost_is_named_to_who_reads_it_and_hides_no_other(tmp_path: Path):
    for steps in (7, 8):
        changes.propose(tmp_path, {"run.steps": steps}, "a test", "why not")
    lose(tmp_path / files.CHANGES, 1)
    assert changes.numbers(tmp_path) == [1, 2]
    assert changes.read(tmp_path, 2).fields == {"run.steps": 8}
    with pytest.raises(files.Unreadable, match=r"000001\.json"):
        changes.read(tmp_path, 1)
