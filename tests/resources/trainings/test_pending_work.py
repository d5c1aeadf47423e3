"""Duties in the training store: each is opened for a life of a training, and closed for the life that was judged."""

from pathlib import Path

import pytest

from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from slipway.trainer.record import files

pytestmark = pytest.mark.pure


@pytest.fixture
def known(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path)


@pytest.fixture
def store(known: Trainings) -> TrainingStore:
    return known.propose(Specification("tiny", {}, "a" * 64, "b" * 64), RunPolicy(1, 1, 1, 60.0, 3))


def desired_generation(store: TrainingStore) -> int:
    return store.read().desired_generation


def test_a_duty_that_is_closed_for_one_life_stays_open_for_the_next(known: Trainings, store: TrainingStore):
    known.start(store, "test", "because")
    store.want("stop", "test", "because")
    judged = desired_generation(store)
    known.start(store, "test", "after all")
    [duty] = known.pending_work(WorkQueue.RUN)
    duty.close(judged)
    assert known.pending(WorkQueue.RUN) == [store.id] and desired_generation(store) == 3
    [duty] = known.pending_work(WorkQueue.RUN)
    duty.close(desired_generation(store))
    assert known.pending(WorkQueue.RUN) == []


def test_what_is_opened_after_the_look_up_stays_open(known: Trainings, store: TrainingStore):
    known.start(store, "test", "because")
    [duty] = known.pending_work(WorkQueue.CHECKPOINTS)
    known.open(store.id, WorkQueue.CHECKPOINTS)
    duty.close(desired_generation(store))
    assert known.pending(WorkQueue.CHECKPOINTS) == [store.id]


def test_a_starter_that_dies_before_it_wants_the_training_leaves_the_duty_of_the_life_to_come(
    known: Trainings, store: TrainingStore, monkeypatch: pytest.MonkeyPatch
):
    known.start(store, "test", "because")
    store.want("stop", "test", "because")

    def die(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TrainingStore, "want", die)
        with pytest.raises(KeyboardInterrupt):
            known.start(store, "test", "after all")
    [duty] = known.pending_work(WorkQueue.RUN)
    duty.close(desired_generation(store))
    assert known.pending(WorkQueue.RUN) == [store.id]


def test_a_duty_of_the_format_before_is_open_and_is_closed(known: Trainings, store: TrainingStore):
    before = known.root / ".open" / "run" / store.id
    before.parent.mkdir(parents=True)
    before.write_bytes(b"")
    assert known.pending(WorkQueue.RUN) == [store.id]
    [duty] = known.pending_work(WorkQueue.RUN)
    duty.close(desired_generation(store))
    assert known.pending(WorkQueue.RUN) == []


def test_a_training_without_terms_is_not_started_and_nothing_is_owed_to_it(known: Trainings, store: TrainingStore):
    for path in store.folder.glob("terms.*"):
        path.unlink()
    with pytest.raises((ValueError, files.Unreadable), match=r"terms\.json"):
        known.start(store, "test", "because")
    assert known.with_pending_work() == set() and store.desired() is None


def test_a_proposal_that_broke_off_before_its_end_is_no_training_yet(known: Trainings, monkeypatch: pytest.MonkeyPatch):
    from slipway.resources.trainings import records

    with monkeypatch.context() as patched, pytest.raises(OSError, match="full"):
        patched.setattr(records, "create", lambda *_: (_ for _ in ()).throw(OSError("full")))
        known.propose(Specification("tiny", {}, "a" * 64, "b" * 64), RunPolicy(1, 1, 1, 60.0, 3))
    assert known.ids() == []


def test_duties_that_cannot_be_listed_are_not_none(known: Trainings):
    folder = known.root / ".open"
    folder.mkdir()
    (folder / "run").write_text("a file")
    with pytest.raises(OSError, match="cannot be listed"):
        known.pending(WorkQueue.RUN)
