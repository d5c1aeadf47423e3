"""Growing back: a training whose node died goes on on fewer, and on all of them once the node is back."""

import dataclasses

import pytest

from slipway.resources.fleet.embedded import kill
from slipway.resources.fleet.protocol import by_name
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.growth import GrowthWatch
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import causes, fence
from tests.conftest import Marked, until
from tests.resources.trainings.lab import BY, ENDLESS, Lab, happened, numbers, until_committed


class Watcher:
    """Looks at a training as the sensor does; between two looks, its clock goes on by ten seconds."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.now = lab, 0.0
        self.control = lab.control(growths=GrowthWatch(lambda: self.now))

    def look(self, store: TrainingStore) -> str:
        self.now += 10
        return self.control.grow(store, store.read(), by_name(self.lab.fleet.nodes()), BY)

    def until_grown(self, store: TrainingStore) -> str:
        grown = until(lambda: self.look(store), "the training to grow")
        assert isinstance(grown, str)
        return grown


def on_one_of_two(lab: Lab) -> TrainingStore:
    """A training that may have both nodes and runs on one, as the other is lost."""
    lab.fleet.mark_lost("node-1", "the power is gone")
    store = lab.start_training(numbers(ENDLESS), nodes=2)
    lab.started(store)
    until_committed(store)
    return store


@pytest.mark.nightly
def test_a_training_takes_back_a_node_that_has_returned_and_goes_on_from_its_checkpoint(lab: Lab, marked: Marked):
    store, watcher = on_one_of_two(lab), Watcher(lab)
    assert not any(watcher.look(store) for _ in range(30)), "there is nothing to grow onto"
    lab.fleet.restore("node-1")
    assert watcher.until_grown(store) == "grown: node-1 is free"
    facts = store.read()
    assert (facts.incarnation, facts.nodes) == (2, ("node-0", "node-1"))
    before = fence.read_exit(store.folder, 1)
    assert before is not None and (before.outcome, before.kind, before.disrupted) == ("stopped", causes.GROWN, True)
    assert not facts.failures and facts.failures_without_checkpoint == 0 and facts.growths == 1
    assert [event["nodes"] for event in happened(store, "grown")] == [["node-1"]]
    lab.advance(store, Action.SUBMIT)
    [restored] = until(lambda: happened(store, "restored"), "both nodes to go on")
    assert restored["incarnation"] == 2 and restored["commit"] in facts.claim.sealed  # type: ignore[union-attr]
    assert not watcher.look(store), "it has all nodes that it may have"
    lab.stopped(store)


@pytest.mark.nightly
@pytest.mark.parametrize("survivors", ["leave", "stay"])
def test_a_running_job_takes_a_lost_node_back_without_a_new_start(lab: Lab, marked: Marked, survivors: str):
    operation = {"recovery": {"survivors": survivors}, "storage": {"nvme": {"minutes": 0, "last": 1}}}
    store, watcher = lab.start_training(numbers(ENDLESS), nodes=2), Watcher(lab)
    store.change_run_policy(dataclasses.replace(store.run_policy(), operation=operation), BY)
    lab.started(store)
    until_committed(store)
    kill(lab.fleet.folder, "node-1")
    until(lambda: store.read().nodes == ("node-0",), "the other node to go on")
    assert not any(watcher.look(store) for _ in range(30)), "the node is away"
    lab.fleet.restore("node-1")

    def is_back() -> bool:
        assert not watcher.look(store), "nothing is started again"
        return store.read().nodes == ("node-0", "node-1")

    until(is_back, "the node to take part again")
    until(lambda: happened(store, "stepped")[-1]["step"] > 1 and len(happened(store, "divided")) == 3, "a step by both")
    facts, divided = store.read(), happened(store, "divided")
    assert facts.incarnation == 1 and not happened(store, "grown")
    assert [{node for node, *_ in event["ranks"].values()} for event in divided] == [
        {"node-0", "node-1"},
        {"node-0"},
        {"node-0", "node-1"},
    ]
    assert facts.nodes == lab.launcher.poll(lab.job(store, 1)).nodes
    lab.stopped(store)


@pytest.mark.slow
def test_a_training_whose_recipe_forbids_it_does_not_grow(lab: Lab, marked: Marked):
    store, watcher = on_one_of_two(lab), Watcher(lab)
    store.change_run_policy(dataclasses.replace(store.run_policy(), grow=False), BY)
    lab.fleet.restore("node-1")
    assert not any(watcher.look(store) for _ in range(30))
    lab.stopped(store)
