"""Training facts: read once for a decision, and what follows from the records."""

from collections import Counter
from pathlib import Path

import pytest

from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.record import causes, fence, heartbeat
from tests.accesses import accesses
from tests.resources.trainings.lab import BRIEF, BY, ENDLESS, Lab, numbers, until_committed


@pytest.fixture
def store(tmp_path: Path) -> TrainingStore:
    run_policy = RunPolicy(1, 1, 1, no_progress_seconds=60, failures_without_checkpoint=3)
    return Trainings(tmp_path / "trainings").propose(Specification("tiny", numbers(20), "a" * 64, "b" * 64), run_policy)


def fail(store: TrainingStore, incarnation: int) -> None:
    store.claim(incarnation, ("node-0",), "a test", "test")
    store.record_exit(incarnation, "failed", "a test", "test")


def commit(store: TrainingStore, step: int, incarnation: int) -> None:
    fence.commit(store.folder, fence.Commit(step, fence.Token(incarnation), f"checkpoints/{step}", "c" * 64))


def assert_read_once(read_counts: Counter[str]) -> None:
    assert read_counts, "nothing was read"
    assert {path: count for path, count in read_counts.items() if count > 1} == {}


@pytest.mark.slow
def test_a_running_training_is_read_once_in_an_advance(lab: Lab):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store, 2)
    with accesses.below(store.folder) as read_counts:
        assert lab.control().advance(store, BY) is Action.WAIT
    assert_read_once(read_counts)
    assert len(read_counts) <= 7
    lab.stopped(store)


def test_a_training_that_failed_is_read_once_in_an_advance_that_finds_no_node(lab: Lab):
    store = lab.start_training(numbers(BRIEF))
    for incarnation in (1, 2):
        fail(store, incarnation)
    for node in lab.fleet.names:
        lab.fleet.mark_lost(node, "a test")
    with accesses.below(store.folder) as read_counts:
        assert lab.control().advance(store, BY) is Action.WAIT
    assert_read_once(read_counts)


def test_a_part_that_is_asked_for_twice_is_read_once(store: TrainingStore):
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    commit(store, 10, incarnation=2)
    heartbeat.Heartbeat(store.folder, fence.Token(2), rank=0).beat("training", 1)
    with accesses.below(store.folder) as read_counts:
        facts = store.read()
        for _ in range(2):
            assert facts.specification.recipe == "tiny" and facts.run_policy.min_nodes == 1
            assert [durable_commit.step for durable_commit in facts.commits_on("durable")] == [10]
            assert facts.beats
            assert not facts.reported and facts.failures_without_checkpoint == 0
    twice = {path for path, count in read_counts.items() if count > 1}
    assert {path for path in twice if path.endswith((".json", ".jsonl"))} == set()


def test_facts_do_not_change_after_they_were_read(store: TrainingStore):
    store.want("run", "test", "")
    facts = store.read()
    fail(store, 1)
    assert facts.incarnation == 0 and facts.ended is None and facts.failures == []
    assert store.read().incarnation == 1


def test_failures_without_a_checkpoint_are_counted_since_the_last_checkpoint(store: TrainingStore):
    store.want("run", "test", "")
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    commit(store, 10, incarnation=2)
    store.record_exit(2, "failed", "a test", "test")
    assert store.read().failures_without_checkpoint == 0
    fail(store, 3)
    fail(store, 4)
    assert store.read().failures_without_checkpoint == 2


def test_an_incarnation_that_was_disrupted_does_not_count_and_does_not_end_the_count(store: TrainingStore):
    store.want("run", "test", "")
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    store.record_exit(2, "failed", "node-0 is lost", "test", nodes=("node-0",), disrupted=True)
    assert store.read().failures_without_checkpoint == 1
    fail(store, 3)
    assert store.read().failures_without_checkpoint == 2
    assert [(ended.nodes, ended.disrupted) for ended in store.read().failures][1] == (("node-0",), True)


def test_running_out_of_memory_does_not_count_when_the_next_start_takes_a_smaller_micro_batch(store: TrainingStore):
    store.want("run", "test", "")
    for incarnation in (1, 2, 3):
        store.claim(incarnation, ("node-0",), "a test", "test")
        store.record_exit(incarnation, "failed", "out of memory", "test", kind=causes.ANSWERED)
    assert store.read().failures_without_checkpoint == 0


def test_an_incarnation_has_begun_once_a_rank_of_it_has_written_a_heartbeat(store: TrainingStore):
    store.claim(1, ("node-0",), "a test", "test")
    assert not store.read().begun
    heartbeat.Heartbeat(store.folder, fence.Token(1, generation=2), rank=0).beat("training", 1)
    assert store.read().begun
    store.claim(2, ("node-0",), "a test", "test")
    assert not store.read().begun


def test_an_incarnation_that_was_stopped_is_no_failure(store: TrainingStore):
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    store.record_exit(2, "stopped", "asked to stop", "test")
    assert store.read().failures_without_checkpoint == 0


def test_the_count_of_failures_starts_anew_when_a_training_is_wanted_again(store: TrainingStore):
    store.want("run", "test", "")
    fail(store, 1)
    assert store.read().failures_without_checkpoint == 1
    store.want("stop", "test", "it fails")
    store.want("run", "test", "mended")
    assert store.read().failures_without_checkpoint == 0


@pytest.mark.parametrize("skew", [-3600.0, 3600.0])
def test_the_count_does_not_depend_on_the_clocks_of_who_wanted_and_who_failed(
    store: TrainingStore, monkeypatch: pytest.MonkeyPatch, skew: float
):
    fail(store, 1)
    store.want("stop", "test", "")
    monkeypatch.setattr("time.time", lambda: 1e9 + skew)
    store.want("run", "test", "again")
    monkeypatch.setattr("time.time", lambda: 1e9)
    fail(store, 2)
    assert store.read().failures_without_checkpoint == 1
