"""The fence: of all processes that ever trained for one training, only the newest claim's can commit."""

import dataclasses
import functools
import itertools
import multiprocessing
import tempfile
import time
from pathlib import Path

import pytest

from slipway.trainer.base import atomic
from slipway.trainer.record import claims, fence
from slipway.trainer.record.fence import Commit, Exit, Superseded, Token
from tests.conftest import PATIENCE_SECONDS, until

pytestmark = pytest.mark.pure

LATE = 1_000_000
"""The steps of commits that were written past the fence begin here."""


def claim(folder: Path, incarnation: int, generation: int = 0) -> bool:
    return fence.claim(folder, Token(incarnation, generation), nodes=("node-0",), cause="a test", by="a test")


def a_commit(step: int, incarnation: int, generation: int = 0) -> Commit:
    return Commit(step, Token(incarnation, generation), f"checkpoints/{step}", "0" * 64, {"loss": 1.5}, 12.0)


def write_past_the_fence(folder: Path, value: Commit) -> None:
    """What a process does that was checked, slept through the next claim, and writes now."""
    with tempfile.TemporaryDirectory() as scratch:
        unfenced = Path(scratch)
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
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None
    assert (newest_claim.token, newest_claim.nodes, newest_claim.cause, newest_claim.by) == (
        Token(3, 2),
        ("node-0", "node-1"),
        "node-2 is dead",
        "control",
    )


def test_a_commit_reads_back_as_it_was_made(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    assert fence.commits(tmp_path) == [a_commit(5, 1)]


def test_commits_are_listed_by_step_in_any_order_of_arrival(tmp_path: Path) -> None:
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
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and newest_claim.token == Token(2)


def test_generations_of_one_incarnation_supersede_each_other_and_the_next_incarnation_all_of_them() -> None:
    assert Token(1) < Token(1, 1) < Token(1, 12) < Token(2) < Token(10)


def test_a_token_reads_back_from_its_name() -> None:
    assert Token.parse(str(Token(12, 3))) == Token(12, 3)


def test_a_commit_needs_the_newest_claim(tmp_path: Path) -> None:
    with pytest.raises(Superseded, match="no token"):
        fence.commit(tmp_path, a_commit(5, 1))
    claim(tmp_path, 1)
    claim(tmp_path, 1, 1)
    with pytest.raises(Superseded, match=r"000001\.0000 was superseded by 000001\.0001"):
        fence.commit(tmp_path, a_commit(5, 1))
    assert fence.commits(tmp_path) == []


def test_a_late_commit_of_an_older_token_never_counts(tmp_path: Path) -> None:
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
    assert names(tmp_path) == [a_commit(5 * number, number).name for number in (1, 2, 3)]


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
    names_under = fence.names_under

    def meanwhile(folder: Path, previous: fence.Claim | None) -> list[str]:
        monkeypatch.setattr(fence, "names_under", names_under)
        assert claim(tmp_path, 1, 1)
        write_past_the_fence(tmp_path, a_commit(5, 1))
        return names_under(folder, previous)

    monkeypatch.setattr(fence, "names_under", meanwhile)
    claim(tmp_path, 2)
    assert names(tmp_path) == []
    claim(tmp_path, 3)
    assert names(tmp_path) == []


def test_the_first_record_of_an_exit_stands(tmp_path: Path) -> None:
    first = Exit(1, "succeeded", "all steps done", 20, "trainer", 12.0)
    assert fence.read_exit(tmp_path, 1) is None
    assert fence.record_exit(tmp_path, first)
    assert not fence.record_exit(tmp_path, Exit(1, "failed", "the job is gone", 20, "control", 13.0))
    assert fence.read_exit(tmp_path, 1) == first
    assert fence.read_exit(tmp_path, 2) is None


def test_a_record_of_another_format_is_refused_by_name(tmp_path: Path) -> None:
    atomic.create_only(tmp_path / "claims" / "000001.json", b'{"format": "another/1"}')
    with pytest.raises(fence.Unreadable, match=r"000001\.json: field format: found 'another/1', expected 'slipway"):
        fence.newest_claim(tmp_path)


@pytest.mark.process
def test_exactly_one_of_several_processes_claims_a_token(tmp_path: Path) -> None:
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
        until(lambda: newest_token(folder) > Token(incarnation), "the claim that was intended")
        write_past_the_fence(folder, a_commit(step + LATE, incarnation))


def newest_token(folder: Path) -> Token:
    newest_claim = fence.newest_claim(folder)
    assert newest_claim is not None
    return newest_claim.token


@pytest.mark.process
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
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None
    assert names(tmp_path) == sorted(newest_claim.sealed)
    assert len(list(tmp_path.glob("commits/*.json"))) >= len(newest_claim.sealed) + len(trainers)
    assert all(commit.step < LATE for commit in fence.commits(tmp_path))


def test_a_commit_that_a_claim_overtakes_is_not_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the write of a commit and the last look, a claim begins: it may list the commit or not."""
    claim(tmp_path, 1)
    write = atomic.create_only

    def meanwhile(path: Path, data: bytes) -> bool:
        monkeypatch.setattr(atomic, "create_only", write)
        written = write(path, data)
        claims.intend(tmp_path, 2)
        return written

    monkeypatch.setattr(atomic, "create_only", meanwhile)
    with pytest.raises(Superseded, match=r"000001\.0000 is being superseded"):
        fence.commit(tmp_path, a_commit(5, 1))


def test_nobody_waits_for_a_claimer_that_died_after_its_intent(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    claims.intend(tmp_path, 2)
    assert claim(tmp_path, 2)
    fence.commit(tmp_path, a_commit(10, 2))
    assert names(tmp_path) == [a_commit(5, 1).name, a_commit(10, 2).name]


def test_a_success_is_never_superseded(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.end(tmp_path, Exit(1, "succeeded", "all steps done", 20, "trainer", 12.0), Token(1))
    assert not claim(tmp_path, 2)
    assert not claim(tmp_path, 1, 1)
    fence.check(tmp_path, Token(1))


def test_a_claim_gives_way_to_a_success_that_comes_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(tmp_path, 1)
    intend = claims.intend

    def meanwhile(folder: Path, number: int) -> None:
        fence.end(tmp_path, Exit(1, "succeeded", "all steps done", 20, "trainer", 12.0), Token(1))
        intend(folder, number)

    monkeypatch.setattr(claims, "intend", meanwhile)
    assert not claim(tmp_path, 2)
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and newest_claim.token == Token(1)


def test_a_success_after_the_training_was_given_up_is_not_acknowledged(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.record_exit(tmp_path, Exit(1, "failed", "no progress", 5, "control", 12.0))
    with pytest.raises(Superseded, match="incarnation 1 is on record as failed: no progress"):
        fence.end(tmp_path, Exit(1, "succeeded", "all steps done", 20, "trainer", 13.0), Token(1))


def test_the_incarnation_that_is_superseded_has_an_exit_before_the_next_one_is_claimed(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    ended = Exit(1, "failed", "node-1 is lost", 5, "control", 12.0, ("node-1",), disrupted=True)
    assert fence.claim(tmp_path, Token(2), nodes=("node-0",), cause="node-1 is lost", by="control", ended=ended)
    assert fence.read_exit(tmp_path, 1) == ended
    assert claim(tmp_path, 3)
    taken_over = fence.read_exit(tmp_path, 2)
    assert taken_over is not None and (taken_over.outcome, taken_over.reason) == ("failed", "superseded: a test")


def test_another_checkpoint_under_the_name_of_a_commit_is_refused(tmp_path: Path) -> None:
    claim(tmp_path, 1)
    fence.commit(tmp_path, a_commit(5, 1))
    fence.commit(tmp_path, dataclasses.replace(a_commit(5, 1), at=13.0))
    with pytest.raises(FileExistsError, match="another checkpoint is on record under this name"):
        fence.commit(tmp_path, dataclasses.replace(a_commit(5, 1), manifest="1" * 64))


def test_ten_thousand_commits_are_sealed_in_time_that_grows_with_their_number_alone(tmp_path: Path) -> None:
    """Comparing every commit with every sealed one took 1.9 s of CPU time."""
    claim(tmp_path, 1)
    for step in range(10_000):
        (tmp_path / "commits" / f"{a_commit(step, 1).name}.json").touch()
    assert claim(tmp_path, 2)
    begun = time.process_time()
    assert claim(tmp_path, 3)
    assert time.process_time() - begun < 1.0
    newest_claim = fence.newest_claim(tmp_path)
    assert newest_claim is not None and len(newest_claim.sealed) == 10_000
