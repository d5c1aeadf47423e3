"""A training store that cannot be read, or is damaged, is no training without commits, and holds up no other one."""

import os
from pathlib import Path

import pytest

from slipway.operations import references
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.records import RunPolicy, Specification
from slipway.resources.trainings.store import Trainings, TrainingStore, all_trials
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit, Token, Unreadable

RUN_POLICY = RunPolicy(1, 1, 1, no_progress_seconds=60.0, failures_without_checkpoint=3)


@pytest.fixture
def trainings(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path / "durable" / "trainings")


@pytest.fixture
def store(trainings: Trainings) -> TrainingStore:
    return started_training(trainings, "one")


def started_training(trainings: Trainings, recipe: str) -> TrainingStore:
    """A training that runs and has committed once; its snapshot is named after its recipe."""
    store = trainings.propose(Specification(recipe, {}, f"snapshot-{recipe}", "0" * 64), RUN_POLICY)
    store.want("run", "test", "the test wants it")
    store.claim(1, ("node-0",), "first start", "test")
    fence.commit(store.folder, Commit(5, Token(1), "folder", "0" * 64))
    return store


def put_a_file_at(folder: Path) -> None:
    """What cannot be listed, for root too."""
    folder.rename(folder.with_name(f"{folder.name}-before"))
    folder.touch()


@pytest.mark.parametrize("part", ["claims", "commits", "desired", "jobs", "set-aside"])
def test_a_part_that_cannot_be_listed_is_an_error_that_names_it(store: TrainingStore, part: str):
    (store.folder / part).mkdir(exist_ok=True)
    put_a_file_at(store.folder / part)
    with pytest.raises(Unreadable, match=f"{part}: cannot be listed"):
        print(store.read().commits)


def test_a_training_that_cannot_be_read_leaves_unknown_which_snapshots_are_in_use(
    trainings: Trainings, store: TrainingStore
):
    tiers = Tiers(durable=str(trainings.root.parent), nvme="{node}")
    done = started_training(trainings, "two")
    done.want("stop", "test", "")
    assert references.snapshots_in_use(tiers) == {"snapshot-one", "snapshot-two"}, "it may go on"
    put_a_file_at(done.folder / "claims")
    with pytest.raises(Unreadable, match="claims: cannot be listed"):
        references.snapshots_in_use(tiers)


def test_trainings_that_cannot_be_listed_are_not_no_trainings(trainings: Trainings, store: TrainingStore):
    assert trainings.ids() == [store.id]
    (trainings.root / "notes").touch()
    (trainings.root / "half-proposed").mkdir()
    assert trainings.ids() == [store.id]
    put_a_file_at(trainings.root)
    with pytest.raises(Unreadable, match="trainings: cannot be listed"):
        trainings.ids()


def test_a_training_whose_folder_cannot_be_read_is_visited_all_the_same(trainings: Trainings, store: TrainingStore):
    (trainings.root / "loop").symlink_to("loop")
    assert trainings.ids() == ["loop", store.id]


def test_sweeps_that_cannot_be_listed_are_not_no_sweeps(tmp_path: Path):
    tiers = Tiers(durable=str(tmp_path), nvme=str(tmp_path / "{node}"))
    assert all_trials(tiers) == {}
    (tmp_path / "sweeps" / "some-sweep" / "trials").mkdir(parents=True)
    (tmp_path / "sweeps" / "half-open").mkdir()
    assert list(all_trials(tiers)) == ["some-sweep"]
    put_a_file_at(tmp_path / "sweeps")
    with pytest.raises(Unreadable, match="sweeps: cannot be listed"):
        all_trials(tiers)


@pytest.mark.parametrize("name", ["specification.json", "terms.json", "desired/000001.json"])
def test_a_damaged_record_of_what_should_be_is_read_from_its_copy(store: TrainingStore, name: str):
    before = (store.specification(), store.run_policy(), store.desired())
    for size in (0, 30):
        os.truncate(store.folder / name, size)
        assert (store.specification(), store.run_policy(), store.desired()) == before
    (store.folder / name).with_suffix(".copy").unlink()
    with pytest.raises(Unreadable, match=f"{name}.*restore {Path(name).name} from a backup"):
        print(store.specification(), store.run_policy(), store.desired())


def test_a_gap_in_what_is_desired_holds_nobody_up(store: TrainingStore):
    store.want("stop", "test", "")
    (store.folder / "desired" / "000001.json").unlink()
    store.want("run", "test", "")
    desired = store.desired()
    assert desired is not None and (desired.want, desired.by) == ("run", "test")
    assert (store.folder / "desired" / "000003.json").exists()


def test_a_damaged_exit_of_an_earlier_incarnation_is_passed_over(store: TrainingStore):
    for incarnation in (1, 2):
        store.record_exit(incarnation, "failed", "a bug", "test")
        store.claim(incarnation + 1, ("node-0",), "again", "test")
    for path in (store.folder / "exits").glob("000001.*"):
        path.write_bytes(b"{")
    assert [ended.incarnation for ended in store.read().failures] == [2]


def test_a_job_seen_missing_counts_from_when_its_damaged_record_was_written(store: TrainingStore):
    store.mark_missing(1, 12.0)
    path = store.folder / "jobs" / "000001.missing.json"
    os.truncate(path, 5)
    assert store.read().missing_since(1) == path.stat().st_mtime


def test_a_success_is_not_superseded_by_the_control_plane(store: TrainingStore):
    store.record_exit(1, "succeeded", "all steps done", "trainer")
    assert not store.claim(2, ("node-0",), "no progress", "test")
    assert store.read().succeeded
