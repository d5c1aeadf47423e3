"""The training store: identity, what is wanted, and what has been shown."""

import dataclasses
import json
from pathlib import Path

import pytest

from resources.training_store import DUTIES, Specification, Terms, Trainings, TrainingStore
from tests.control.lab import at_once, numbers
from trainer import fence, heartbeat

SPECIFICATION = Specification("tiny", numbers(20), "a" * 64, "b" * 64)
TERMS = Terms(1, 1, 1, no_progress_seconds=60, fruitless_incarnations=3)


@pytest.fixture
def known(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path / "trainings")


@pytest.fixture
def store(known: Trainings) -> TrainingStore:
    return known.propose(SPECIFICATION, TERMS)


def fail(store: TrainingStore, incarnation: int) -> None:
    store.claim(incarnation, ("node-0",), "a test", "test")
    store.record_exit(incarnation, "failed", "a test", "test")


def commit(store: TrainingStore, step: int, incarnation: int) -> None:
    fence.commit(store.folder, fence.Commit(step, fence.Token(incarnation), f"checkpoints/{step}", "c" * 64))


@pytest.mark.parametrize(
    "change", [{"numbers": numbers(21)}, {"snapshot": "c" * 64}, {"tokenizer": "c" * 64}, {"cause": "again"}]
)
def test_whatever_decides_a_trainings_numbers_is_in_its_id(change: dict[str, object]):
    assert dataclasses.replace(SPECIFICATION, **change).id != SPECIFICATION.id  # type: ignore[arg-type]


def test_the_same_training_proposed_twice_is_one(known: Trainings, store: TrainingStore):
    again = known.propose(SPECIFICATION, dataclasses.replace(TERMS, max_nodes=2))
    assert known.known() == [store.id] == [again.id]
    assert store.specification().id == store.id
    assert store.terms().max_nodes == 2


def test_a_training_that_nobody_proposed_is_refused(known: Trainings):
    with pytest.raises(ValueError, match=r"tiny-1.*there is no such training"):
        known.store("tiny-1").specification()


@pytest.mark.parametrize("id", ["", "../elsewhere", ".open"])
def test_an_id_that_leaves_the_root_is_refused(known: Trainings, id: str):
    with pytest.raises(ValueError, match="training id"):
        known.store(id)


def test_a_folder_of_another_format_is_refused(store: TrainingStore):
    path = store.folder / "terms.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": "slipway.training/9"}))
    with pytest.raises(ValueError, match=r"terms\.json: not of format slipway\.training/1"):
        store.terms()


def test_the_last_wish_holds(store: TrainingStore):
    assert not store.wanted and store.desired() is None
    store.want("run", "a", "because")
    store.want("stop", "b", "enough")
    desired = store.desired()
    assert desired is not None and (desired.want, desired.by, desired.why) == ("stop", "b", "enough")


def test_wishing_again_what_holds_changes_nothing(store: TrainingStore):
    store.want("run", "a", "because")
    before = store.desired()
    store.want("run", "b", "me too")
    assert store.desired() == before


def test_of_wishes_at_one_moment_none_is_lost(store: TrainingStore):
    at_once(*[lambda want=want: store.want(want, "test", "") for want in ("run", "stop") * 4])
    written = [json.loads(path.read_text())["want"] for path in sorted(store.folder.glob("desired/*.json"))]
    assert set(written) == {"run", "stop"}
    desired = store.desired()
    assert desired is not None and desired.want == written[-1]


def test_one_incarnation_is_claimed_by_one(store: TrainingStore):
    claims = at_once(*[lambda: store.claim(1, ("node-0",), "a test", "test")] * 8)
    assert sorted(claims, key=bool) == [False] * 7 + [True]


def test_the_first_record_of_an_end_stands(store: TrainingStore):
    fail(store, 1)
    store.record_exit(1, "stopped", "too late", "test")
    ended = store.exit()
    assert ended is not None and ended.outcome == "failed"
    assert [event["outcome"] for event in store.events() if event["event"] == "ended"] == ["failed"]


def test_fruitless_are_the_failures_since_the_last_checkpoint(store: TrainingStore):
    store.want("run", "test", "")
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    commit(store, 10, incarnation=2)
    store.record_exit(2, "failed", "a test", "test")
    assert store.fruitless() == 0
    fail(store, 3)
    fail(store, 4)
    assert store.fruitless() == 2


def test_an_incarnation_that_was_disrupted_is_neither_fruitless_nor_fruitful(store: TrainingStore):
    store.want("run", "test", "")
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    store.record_exit(2, "failed", "node-0 is lost", "test", nodes=("node-0",), disrupted=True)
    assert store.fruitless() == 1
    fail(store, 3)
    assert store.fruitless() == 2
    assert [(ended.nodes, ended.disrupted) for ended in store.failures()][1] == (("node-0",), True)


def test_an_incarnation_has_begun_once_a_trainer_of_it_was_heard_of(store: TrainingStore):
    store.claim(1, ("node-0",), "a test", "test")
    assert not store.begun(1)
    heartbeat.Heartbeat(store.folder, fence.Token(1, generation=2), rank=0).beat("training", 1)
    assert store.begun(1) and not store.begun(2)


def test_an_incarnation_that_was_stopped_is_not_fruitless(store: TrainingStore):
    fail(store, 1)
    store.claim(2, ("node-0",), "a test", "test")
    store.record_exit(2, "stopped", "asked to stop", "test")
    assert store.fruitless() == 0


def test_who_wants_a_training_again_forgives_its_failures(store: TrainingStore):
    store.want("run", "test", "")
    fail(store, 1)
    assert store.fruitless() == 1
    store.want("stop", "test", "it fails")
    store.want("run", "test", "mended")
    assert store.fruitless() == 0


def test_duties_are_opened_and_closed_one_by_one(known: Trainings, store: TrainingStore):
    known.start(store, "test", "because")
    known.start(store, "test", "because")
    assert store.wanted
    assert [known.opened(duty) for duty in DUTIES] == [[store.id]] * len(DUTIES)
    known.close(store.id, "promotion")
    known.close(store.id, "promotion")
    assert known.opened("promotion") == [] and known.opened("run") == [store.id]


def test_what_was_shown_is_remembered(store: TrainingStore):
    assert not store.reported("commit-1")
    store.mark_reported("commit-1")
    store.mark_reported("commit-1")
    assert store.reported("commit-1") and store.reports("commit-") == ["1"]
