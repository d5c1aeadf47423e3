"""The training store: identity, what is wanted, and what has been shown."""

import dataclasses
import json
import threading
from pathlib import Path

import pytest

from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from slipway.trainer.base import codec
from tests.resources.trainings.lab import at_once, numbers

pytestmark = pytest.mark.pure

SPECIFICATION = Specification("tiny", numbers(20), "a" * 64, "b" * 64)
RUN_POLICY = RunPolicy(1, 1, 1, no_progress_seconds=60, failures_without_checkpoint=3)


@pytest.fixture
def known(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path / "trainings")


@pytest.fixture
def store(known: Trainings) -> TrainingStore:
    return known.propose(SPECIFICATION, RUN_POLICY)


def fail(store: TrainingStore, incarnation: int) -> None:
    store.claim(incarnation, ("node-0",), "a test", "test")
    store.record_exit(incarnation, "failed", "a test", "test")


@pytest.mark.parametrize(
    "change", [{"identity_config": numbers(21)}, {"snapshot": "c" * 64}, {"tokenizer": "c" * 64}, {"cause": "again"}]
)
def test_whatever_decides_a_trainings_numbers_is_in_its_id(change: dict[str, object]):
    assert dataclasses.replace(SPECIFICATION, **change).id != SPECIFICATION.id  # type: ignore[arg-type]


def test_the_same_training_proposed_twice_is_one(known: Trainings, store: TrainingStore):
    again = known.propose(SPECIFICATION, dataclasses.replace(RUN_POLICY, max_nodes=2))
    assert known.ids() == [store.id] == [again.id]
    assert store.specification().id == store.id
    assert store.run_policy().max_nodes == 2


def test_a_training_proposed_again_keeps_its_origin_and_the_ledger_has_what_changed(known: Trainings):
    store = known.propose(SPECIFICATION, dataclasses.replace(RUN_POLICY, origin={"sweep": "s"}, init="/weights"))
    store.claim(1, ("node-0",), "a test", "test")
    for _ in range(2):
        known.propose(SPECIFICATION, dataclasses.replace(RUN_POLICY, max_nodes=2), by="ada")
    assert (store.run_policy().origin, store.run_policy().init, store.run_policy().edition) == (
        {"sweep": "s"},
        "/weights",
        2,
    )
    [event] = [event for event in store.events() if event["event"] == "terms_changed"]
    assert (event["changed"], event["by"]) == ({"max_nodes": [1, 2]}, "ada")


def test_terms_that_are_damaged_on_both_copies_are_made_again_by_a_proposal(known: Trainings, store: TrainingStore):
    for path in store.folder.glob("terms.*"):
        path.write_text("{")
    known.propose(SPECIFICATION, RUN_POLICY)
    assert store.run_policy().max_nodes == RUN_POLICY.max_nodes


def test_terms_that_an_earlier_version_wrote_are_read(store: TrainingStore):
    path = store.folder / "terms.json"
    written = json.loads(path.read_bytes())
    for field in ("fields", "edition", "checksum"):
        del written[field]
    path.write_text(json.dumps(written))
    path.with_suffix(".copy").unlink()
    assert store.run_policy() == dataclasses.replace(RUN_POLICY, fields=(), edition=1)


def test_a_training_that_was_never_proposed_is_refused(known: Trainings):
    with pytest.raises(ValueError, match=r"tiny-1.*there is no such training"):
        known.store("tiny-1").specification()


def test_a_gap_in_what_was_desired_stops_nobody(store: TrainingStore):
    for want in ("run", "stop", "run"):
        store.want(want, "test", "a test")
    (store.folder / "desired" / "000002.json").unlink()
    wanting = threading.Thread(target=store.want, args=("stop", "test", "after the gap"), daemon=True)
    wanting.start()
    wanting.join(10)
    desired = store.desired()
    assert not wanting.is_alive() and desired is not None and desired.why == "after the gap"


@pytest.mark.parametrize("id", ["", "../elsewhere", ".open"])
def test_an_id_that_leaves_the_root_is_refused(known: Trainings, id: str):
    with pytest.raises(ValueError, match="training id"):
        known.store(id)


def test_a_folder_of_another_format_is_refused(store: TrainingStore):
    path = store.folder / "terms.json"
    path.write_bytes(codec.encode({**codec.document(store.run_policy()), "format": "slipway.training/9"}))
    with pytest.raises(ValueError, match=r"terms\.json: field format: found .*, expected .slipway\.training/1."):
        store.run_policy()


def test_terms_keep_the_first_key_of_a_renamed_field_on_disk(store: TrainingStore):
    record = json.loads((store.folder / "terms.json").read_text())
    assert record["fruitless_incarnations"] == store.run_policy().failures_without_checkpoint == 3
    assert "failures_without_checkpoint" not in record


def test_the_last_record_of_what_is_desired_holds(store: TrainingStore):
    assert not store.read().should_run and store.desired() is None
    store.want("run", "a", "because")
    store.want("stop", "b", "enough")
    desired = store.desired()
    assert desired is not None and (desired.want, desired.by, desired.why) == ("stop", "b", "enough")


def test_wanting_again_what_is_desired_already_changes_nothing(store: TrainingStore):
    store.want("run", "a", "because")
    before = store.desired()
    store.want("run", "b", "me too")
    assert store.desired() == before


def test_no_record_is_lost_when_several_processes_want_at_one_moment(store: TrainingStore):
    at_once(*[lambda want=want: store.want(want, "test", "") for want in ("run", "stop") * 4])
    written = [json.loads(path.read_text())["want"] for path in sorted(store.folder.glob("desired/*.json"))]
    assert set(written) == {"run", "stop"}
    desired = store.desired()
    assert desired is not None and desired.want == written[-1]


def test_exactly_one_process_claims_an_incarnation(store: TrainingStore):
    claims = at_once(*[lambda: store.claim(1, ("node-0",), "a test", "test")] * 8)
    assert sorted(claims, key=bool) == [False] * 7 + [True]


def test_the_first_record_of_an_end_stands(store: TrainingStore):
    fail(store, 1)
    store.record_exit(1, "stopped", "too late", "test")
    ended = store.exit()
    assert ended is not None and ended.outcome == "failed"
    assert [event["outcome"] for event in store.events() if event["event"] == "ended"] == ["failed"]


def test_duties_are_opened_and_closed_one_by_one(known: Trainings, store: TrainingStore):
    known.start(store, "test", "because")
    known.start(store, "test", "because")
    assert store.read().should_run
    assert [known.pending(duty) for duty in WorkQueue] == [[store.id]] * len(WorkQueue)
    known.close(store.id, WorkQueue.PROMOTION)
    known.close(store.id, WorkQueue.PROMOTION)
    assert known.pending(WorkQueue.PROMOTION) == [] and known.pending(WorkQueue.RUN) == [store.id]


def test_a_mark_of_what_was_shown_is_kept(store: TrainingStore):
    assert store.read().reported == frozenset()
    store.mark_reported("commit-1")
    store.mark_reported("commit-1")
    assert store.read().reported == {"commit-1"}
