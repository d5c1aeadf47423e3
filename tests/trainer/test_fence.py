"""The fence: of all processes that ever trained for one training, only the newest claim's can commit."""

import functools
import itertools
import json
import multiprocessing
import tempfile
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_SECONDS, until
from trainer import atomic, fence
from trainer.fence import Commit, Exit, Superseded, Token

LATE = 1_000_000
"""The steps of commits that were written past the fence begin here."""


def claim(folder: Path, incarnation: int, generation: int = 0) -> bool:
    return fence.claim(folder, Token(incarnation, generation), nodes=("node-0",), cause="a test", by="a test")


def a_commit(step: int, incarnation: int, generation: int = 0) -> Commit:
    return Commit(step, Token(incarnation, generation), f"checkpoints/{step}", "0" * 64, {"loss": 1.5}, 12.0)


def write_past_the_fence(folder: Path, value: Commit) -> None:
    """What a process does that was checked, slept through the next claim, and writes now."""
    with tempfile.TemporaryDirectory() as elsewhere:
        unfenced = Path(elsewhere)
        claim(unfenced, value.token.incarnation, value.token.generation)
        fence.commit(unfenced, value)
        record = (unfenced / "commits" / f"{value.name}.json").read_bytes()
    atomic.create_only(folder / "commits" / f"{value.name}.json", record)


def names(folder: Path) -> list[str]:
    return [commit.name for commit in fence.commits(folder)]


def test_before_the_first_claim_there_is_no_holder_and_no_commit(tmp_path: Path) -> None:
    assert fence.newest_claim(tmp_path) is None
    assert fence.commits(tmp_path) == []


def test_a_claim_reads_back_as_it_was_made(tmp_path: Path) -> None:
    fence.claim(tmp_path, Token(3, 2), nodes=("node-0", "node-1"), cause="node-2 is dead", by="control")
    held = fence.newest_claim(tmp_path)
    assert held is not None
    assert (held.token, held.nodes, held.cause, held.by) == (
        Token(3, 2),
        ("node-0", "node-1"),
        "node-2 is dead",
        "control",
    )


def test_a_commit_reads_back_as_it_was_made(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    assert fence.commits(tmp_path) == [a_commit(5, 1)]


def test_commits_are_listed_by_step_whatever_order_they_came_in(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    for step in (100, 9, 20):
        fence.commit(tmp_path, a_commit(step, 1))
    assert [commit.step for commit in fence.commits(tmp_path)] == [9, 20, 100]


def test_a_token_is_claimed_once(tmp_path: Path) -> None:
    assert claim(tmp_path, 1)
    assert not claim(tmp_path, 1)


def test_an_older_token_cannot_be_claimed_any_more(tmp_path: Path) -> None:
    claim(tmp_path, 2)
    assert not claim(tmp_path, 1, 7)
    held = fence.newest_claim(tmp_path)
    assert held is not None and held.token == Token(2)


def test_generations_of_one_incarnation_supersede_each_other_and_the_next_incarnation_all_of_them() -> None:
    assert Token(1) < Token(1, 1) < Token(1, 12) < Token(2) < Token(10)


def test_a_token_reads_back_from_its_name() -> None:
    assert Token.parse(str(Token(12, 3))) == Token(12, 3)


def test_a_commit_needs_the_newest_claim(tmp_path: Path) -> None:
    with pytest.raises(Superseded, match="nobody"):
        fence.commit(tmp_path, a_commit(5, 1))
    claim(tmp_path, 1)
    claim(tmp_path, 1, 1)
    with pytest.raises(Superseded, match=r"000001\.0000 was superseded by 000001\.0001"):
        fence.commit(tmp_path, a_commit(5, 1))
    assert fence.commits(tmp_path) == []


def test_a_late_commit_of_an_older_token_is_ignored_for_ever(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    claim(tmp_path, 2)
    write_past_the_fence(tmp_path, a_commit(10, 1))
    for later in (3, 4, 5):
        assert names(tmp_path) == [a_commit(5, 1).name]
        claim(tmp_path, later)


def test_sealed_commits_stay_valid_over_several_claims(tmp_path: Path) -> None:
    for incarnation in (1, 2, 3):
        claim(tmp_path, incarnation)
        fence.commit(tmp_path, a_commit(5 * incarnation, incarnation))
    claim(tmp_path, 4)
    assert names(tmp_path) == [a_commit(5 * each, each).name for each in (1, 2, 3)]


def test_a_claimer_that_slept_through_another_claim_fails_and_drops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading what is valid and writing its claim, another generation claims and commits."""
    claim(tmp_path, 1)
    write = atomic.create_only

    def meanwhile(path: Path, data: bytes) -> bool:
        monkeypatch.setattr(atomic, "create_only", write)
        assert claim(tmp_path, 1, 1)
        fence.commit(tmp_path, a_commit(5, 1, 1))
        return write(path, data)

    monkeypatch.setattr(atomic, "create_only", meanwhile)
    assert not claim(tmp_path, 2)
    assert names(tmp_path) == [a_commit(5, 1, 1).name]
    assert claim(tmp_path, 2)
    assert names(tmp_path) == [a_commit(5, 1, 1).name]


def test_a_claimer_that_slept_through_another_claim_cannot_bring_a_late_commit_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, 1)
    list_valid = fence._valid

    def meanwhile(folder: Path, holder: fence.Claim | None) -> list[Commit]:
        monkeypatch.setattr(fence, "_valid", list_valid)
        assert claim(tmp_path, 1, 1)
        write_past_the_fence(tmp_path, a_commit(5, 1))
        return list_valid(folder, holder)

    monkeypatch.setattr(fence, "_valid", meanwhile)
    claim(tmp_path, 2)
    assert names(tmp_path) == []
    claim(tmp_path, 3)
    assert names(tmp_path) == []


def test_a_commit_set_aside_does_not_count_under_this_claim_or_a_later_one(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    for step in (5, 10):
        fence.commit(tmp_path, a_commit(step, 1))
    assert fence.set_aside(tmp_path, a_commit(10, 1), "a flipped bit")
    assert names(tmp_path) == [a_commit(5, 1).name]
    claim(tmp_path, 2)
    assert names(tmp_path) == [a_commit(5, 1).name]


def test_the_first_reason_for_setting_aside_stands(tmp_path: Path) -> None:
    assert fence.set_aside(tmp_path, a_commit(10, 1), "a flipped bit")
    assert not fence.set_aside(tmp_path, a_commit(10, 1), "another reason")
    [record] = (tmp_path / "set-aside").iterdir()
    assert json.loads(record.read_bytes())["reason"] == "a flipped bit"


def test_the_first_record_of_an_exit_stands(tmp_path: Path) -> None:
    first = Exit(1, "succeeded", "all steps done", 20, "trainer", 12.0)
    assert fence.read_exit(tmp_path, 1) is None
    assert fence.record_exit(tmp_path, first)
    assert not fence.record_exit(tmp_path, Exit(1, "failed", "the job is gone", 20, "control", 13.0))
    assert fence.read_exit(tmp_path, 1) == first
    assert fence.read_exit(tmp_path, 2) is None


def test_a_record_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    atomic.create_only(tmp_path / "claims" / "000001.json", b'{"format": "another/1"}')
    with pytest.raises(ValueError, match=r"000001\.json: not of format slipway\.fence/1"):
        fence.newest_claim(tmp_path)


def test_of_several_processes_that_claim_one_token_exactly_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for incarnation in range(1, 6):
        gate, won = context.Barrier(3), context.Queue()

        def race(incarnation: int = incarnation, gate=gate, won=won) -> None:
            gate.wait()
            won.put(claim(tmp_path, incarnation))

        racers = [context.Process(target=race) for _ in range(3)]
        for racer in racers:
            racer.start()
        outcomes = [won.get(timeout=PATIENCE_SECONDS) for _ in racers]
        for racer in racers:
            racer.join()
        assert sorted(outcomes) == [False, False, True]


def trains_until_superseded(folder: Path, incarnation: int) -> None:
    """A trainer that commits as fast as it can, and once more when it was told to stop."""
    step = 0
    try:
        for step in itertools.count(1):
            fence.commit(folder, a_commit(step, incarnation))
    except Superseded:
        write_past_the_fence(folder, a_commit(step + LATE, incarnation))


def test_processes_that_commit_through_the_claims_of_others_never_change_what_was_sealed(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")

    def has_committed(incarnation: int) -> bool:
        return sum(commit.token.incarnation == incarnation for commit in fence.commits(tmp_path)) > 3

    trainers = []
    for incarnation in range(1, 6):
        assert claim(tmp_path, incarnation)
        trainers.append(context.Process(target=trains_until_superseded, args=(tmp_path, incarnation)))
        trainers[-1].start()
        until(functools.partial(has_committed, incarnation), "some commits")
    claim(tmp_path, 6)
    for trainer in trainers:
        trainer.join()
    held = fence.newest_claim(tmp_path)
    assert held is not None
    assert names(tmp_path) == sorted(held.sealed)
    assert len(list(tmp_path.glob("commits/*.json"))) >= len(held.sealed) + len(trainers)
    assert all(commit.step < LATE for commit in fence.commits(tmp_path))
