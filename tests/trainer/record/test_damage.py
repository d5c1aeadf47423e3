"""Damaged records: none is silently changed, and a training goes on from every commit that is certain."""

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import codec
from slipway.trainer.record import fence, files
from slipway.trainer.record.fence import Exit, Token, Unreadable
from tests.trainer.record.test_fence import a_commit, claim, names

pytestmark = pytest.mark.pure

STEPS = (5, 10, 15, 20, 25)


@pytest.fixture
def training(tmp_path: Path) -> Path:
    """A training whose first incarnation stopped, with a claim of a restart, five commits, and one set aside."""
    claim(tmp_path, 1)
    for step in STEPS[:3]:
        fence.commit(tmp_path, a_commit(step, 1))
    claim(tmp_path, 1, 1)
    fence.set_aside(tmp_path, a_commit(15, 1), "a flipped bit", Token(1, 1))
    for step in STEPS[3:]:
        fence.commit(tmp_path, a_commit(step, 1, 1))
    fence.record_exit(tmp_path, Exit(1, "stopped", "asked to stop", 25, "control", 12.0))
    claim(tmp_path, 2)
    return tmp_path


def records(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def faults(content: bytes) -> Iterator[bytes]:
    """Truncations and changed bytes of a file, at places that a seed chooses, with its ends."""
    chance = random.Random(len(content))
    for position in {0, 1, len(content) // 2, len(content) - 2, *(chance.randrange(len(content)) for _ in range(12))}:
        yield content[:position]
        yield content[:position] + bytes([content[position] ^ (1 << chance.randrange(8))]) + content[position + 1 :]


def test_with_any_one_damaged_record_nothing_else_changes(training: Path) -> None:
    commits, newest_claim, ended = fence.commits(training), fence.newest_claim(training), fence.read_exit(training, 1)
    for path in records(training):
        content, others = path.read_bytes(), [commit for commit in commits if commit.name != path.stem]
        for data in faults(content) if content else ():
            path.write_bytes(data)
            assert fence.commits(training) in (commits, others)
            assert (fence.newest_claim(training), fence.read_exit(training, 1)) == (newest_claim, ended)
        path.write_bytes(content)
    assert fence.commits(training) == commits


def test_with_any_one_truncated_record_the_next_incarnation_begins_with_all_other_commits(
    training: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    before = names(training)
    for path in records(training):
        copy = tmp_path_factory.mktemp("copies") / "training"
        shutil.copytree(training, copy)
        os.truncate(copy / path.relative_to(training), path.stat().st_size // 2)
        assert claim(copy, 3)
        assert names(copy) == [name for name in before if path.parent.name != files.COMMITS or name != path.stem]


def test_a_damaged_commit_is_named_with_the_reason_and_the_others_count(training: Path) -> None:
    path = training / "commits" / f"{a_commit(5, 1).name}.json"
    path.write_bytes(path.read_bytes()[:40])
    assert names(training) == [a_commit(10, 1).name, a_commit(20, 1, 1).name, a_commit(25, 1, 1).name]
    assert list(fence.damaged(training, fence.newest_claim(training))) == [a_commit(5, 1).name]
    assert claim(training, 3)
    assert names(training) == [a_commit(10, 1).name, a_commit(20, 1, 1).name, a_commit(25, 1, 1).name]


def test_a_commit_under_the_name_of_another_does_not_count(training: Path) -> None:
    one, other = (training / "commits" / f"{a_commit(step, 1).name}.json" for step in (5, 10))
    one.write_bytes(other.read_bytes())
    assert a_commit(5, 1).name not in names(training)


def test_a_commit_of_a_later_version_is_an_error_and_not_passed_over(training: Path) -> None:
    path = training / "commits" / f"{a_commit(5, 1).name}.json"
    path.write_bytes(codec.encode({"format": "slipway.fence/2"}))
    with pytest.raises(ValueError, match=r"found 'slipway\.fence/2', expected 'slipway.fence/1'"):
        fence.commits(training)


def test_a_claim_that_is_damaged_with_its_copy_stops_the_training_by_name(training: Path) -> None:
    for path in (training / "claims").glob("000003.[jc]*"):
        path.write_bytes(path.read_bytes()[:40])
    for attempt in (fence.commits, fence.newest_claim, lambda folder: claim(folder, 3)):
        with pytest.raises(Unreadable, match=r"claims/000003\.json:3: .*restore 000003\.json from a backup"):
            attempt(training)


def test_an_old_claim_that_is_damaged_with_its_copy_matters_for_history_alone(training: Path) -> None:
    before = names(training)
    for path in (training / "claims").glob("000001.[jc]*"):
        path.write_bytes(b"")
    assert names(training) == before
    assert [past_claim.token for past_claim in fence.claims(training)] == [Token(1, 1), Token(2)]
    assert claim(training, 3)


def test_a_claim_that_is_gone_is_read_from_its_copy(training: Path) -> None:
    before = names(training)
    (training / "claims" / "000003.json").unlink()
    assert names(training) == before
    assert claim(training, 3)
    assert names(training) == before


def test_a_set_aside_commit_stays_so_when_the_reason_is_damaged(training: Path) -> None:
    [path] = (training / "set-aside").iterdir()
    path.write_bytes(b"{")
    assert a_commit(15, 1).name not in names(training)
    assert "the reason is not known" in fence.set_aside_reasons(training)[a_commit(15, 1).name]


def test_records_of_the_version_before_are_read_and_continued(training: Path) -> None:
    """They have no checksum, no copies, no intents, and claims neither a number nor removals."""
    before = names(training)
    for path in records(training):
        if path.suffix != ".json":
            path.unlink()
            continue
        value = codec.read(path, dict[str, Any])
        for later in ("removals", "number") if path.parent.name == "claims" else ():
            del value[later]
        path.write_text(json.dumps(value))
    (training / "set-aside" / f"{a_commit(15, 1).name}.by.{Token(1, 1)}.json").rename(
        training / "set-aside" / f"{a_commit(15, 1).name}.json"
    )
    assert names(training) == before
    assert claim(training, 3)
    fence.commit(training, a_commit(30, 3))
    assert names(training) == [*before, a_commit(30, 3).name]
