"""Unfit nodes: what a node lacks leads a training elsewhere, or holds it back; it ends none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.resources.trainings import budgets, incident_reports, incidents
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import causes, fence
from tests.disks import mounted
from tests.resources.trainings.lab import BRIEF, BY, ENDLESS, Lab, numbers, until_committed

ROOM = "placement.staging: found auto with 1.0 kB of room on the NVMe of node-0, expected 6.0 MB or more"


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """What will be the NVMe of node-0, which has hardly any room."""
    nvme = tmp_path / "nodes" / "node-0" / "nvme"
    nvme.mkdir(parents=True)
    with mounted(nvme, "size=16k"):
        yield nvme


@pytest.mark.slow
def test_a_training_whose_node_is_full_goes_on_on_another_one(full: Path, lab: Lab):
    store = lab.start_training(numbers(ENDLESS))
    lab.advance(store, Action.RECORD)
    [ended] = store.read().failures
    assert (ended.kind, store.read().should_run) == (causes.NODE, True), ended.reason
    lab.started(store)
    claim = store.newest_claim()
    assert claim is not None and (claim.token.incarnation, claim.nodes) == (2, ("node-1",))
    until_committed(store)
    lab.stopped(store)


def failed(store: TrainingStore, incarnation: int, kind: str, reason: str) -> None:
    """A start that has failed so, with its incident."""
    assert store.claim(incarnation, ("node-0",), "a test", BY)
    store.record_exit(incarnation, "failed", reason, BY, ("node-0",), kind=kind)
    ended = store.exit()
    assert ended is not None and incidents.note_failure(store, ended)


def failed_with_a_checkpoint(store: TrainingStore) -> None:
    """The first incarnation, which left a checkpoint of step 129."""
    store.claim(1, ("node-0",), "a test", BY)
    fence.commit(store.folder, fence.Commit(129, fence.Token(1), "checkpoints/129", "c" * 64))
    store.record_exit(1, "failed", "its node died", BY, kind=causes.MACHINE)


@pytest.mark.parametrize("kind", [causes.NODE, causes.STORAGE, causes.KILLED, causes.HUNG, causes.UNKNOWN])
def test_a_training_with_a_checkpoint_is_held_back_and_says_so_where_others_were_given_up(lab: Lab, kind: str):
    store = lab.start_training(numbers(BRIEF))
    failed_with_a_checkpoint(store)
    for incarnation in range(2, 11):
        failed(store, incarnation, kind, ROOM)
    facts = store.read()
    assert budgets.exhausted_by(facts) == "" and budgets.held_by(facts)
    control = lab.control()
    assert control.advance(store, BY) is Action.WAIT and store.read().should_run
    waiting = control.waiting(store.read())
    assert waiting is not None and "it waits for a person" in waiting.reason
    *_, last = incident_reports.of(store, store.read())
    assert last.state == incident_reports.WAITING and last.action == incident_reports.HELD_BACK
    assert last.todo.endswith("the platform retries the training by itself")
    later = lab.control(clock=lambda: (facts.ended.at if facts.ended else 0) + budgets.LONGEST_HELD_REST)
    assert later.advance(store, BY) is Action.CLAIM
    *_, before = incident_reports.of(store, store.read())
    assert before.state == incident_reports.RECOVERING and not before.todo


def test_one_whose_configuration_cannot_be_trained_is_given_up_also_with_a_checkpoint(
    lab: Lab,
):
    store = lab.start_training(numbers(BRIEF))
    failed_with_a_checkpoint(store)
    failed(store, 2, causes.CONFIGURATION, "model: found 3 heads")
    assert lab.control().advance(store, BY) is Action.GIVE_UP
