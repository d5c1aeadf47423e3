"""Refusals: what a platform in change does not let through holds a training back, and ends none.

On a simulated cluster, over HTTP; what runs in the pods are processes without a model.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.resources.kubernetes.objects import NODES
from slipway.resources.launchers.kubernetes.workloads.indexed_job import IndexedJob
from slipway.resources.launchers.kubernetes.workloads.jobset import JobSet
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.record import causes
from tests.conftest import Marked, until
from tests.kubernetes.simulated.cluster import Cluster
from tests.resources.trainings import test_disruptions
from tests.resources.trainings.lab import BY, advance
from tests.resources.trainings.test_disruptions import NODES_OF_THE_FLEET

cluster = test_disruptions.cluster
RULE = (
    'a Role with the rule apiGroups ["batch"], resources ["jobs"], verbs ["create"], bound to that user, would grant it'
)


class Lab(test_disruptions.Lab):
    """The same, with a clock that goes on by a minute with each step, so that no pause is waited for."""

    minutes = 0

    def step(self, store: TrainingStore) -> Action:
        """Take the step that is due a minute after the last one."""
        self.minutes += 1
        self.now = lambda: time.time() + 60 * self.minutes
        return self.control.advance(store, BY)

    def begins(self, store: TrainingStore) -> bool:
        """Take a step; whether the trainer has been heard of."""
        self.step(store)
        return store.read().begun

    def is_refused(self, store: TrainingStore) -> bool:
        """Take a step; whether its start was refused."""
        self.step(store)
        return store.read().refusal is not None

    def waits_for(self, store: TrainingStore) -> str:
        wait = self.control.waiting(store.read())
        return wait.reason if wait else ""


@pytest.fixture
def lab(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path, marked: Marked) -> Iterator[Lab]:
    lab = Lab(cluster, tmp_path, getattr(request, "param", IndexedJob()))
    yield lab
    cluster.allow()
    for store in Trainings(tmp_path / "trainings").stores():
        store.want("stop", BY, "the test is over")
        advance(lab.control, store)


def incident(store: TrainingStore) -> incident_reports.IncidentReport:
    """The one incident of the platform."""
    [report] = [
        incident_report
        for incident_report in incident_reports.of(store, store.read())
        if incident_report.kind == causes.PLATFORM
    ]
    return report


def test_a_training_whose_right_is_revoked_while_its_job_is_replaced_waits_and_goes_on_by_itself(lab: Lab):
    store = lab.running()
    lab.cluster.forbid("create", "jobs")
    lab.evict()
    until(lambda: lab.is_refused(store), "the refusal")
    facts = store.read()
    assert (facts.should_run, facts.running, facts.incarnation) == (True, True, 2)
    assert lab.waits_for(store).startswith("it waits for a person: ") and RULE in lab.waits_for(store)
    report = incident(store)
    assert report.state == incident_reports.WAITING and RULE in report.cause
    assert report.todo.startswith("add to the platform what the cause names") and "the platform retries" in report.todo
    assert "nowhere yet" in incident_reports.post_mortem(store, report)

    lab.cluster.allow()
    until(lambda: lab.begins(store), "the next trainer")
    assert store.read().incarnation == 2
    assert incident(store).state == incident_reports.OVER and not incident(store).todo


def test_a_first_start_waits_too_with_growing_pauses_and_one_incident(lab: Lab):
    lab.cluster.forbid("create", "configmaps")
    store = lab.start_training()
    until(lambda: lab.is_refused(store), "the refusal")
    for _ in range(3):
        lab.step(store)
    refusal = store.read().refusal
    assert refusal is not None and refusal.count == 4
    creations = lab.cluster.requests()["create", "configmaps"]
    assert lab.control.advance(store, BY) is Action.WAIT, "the pause has not passed"
    assert lab.cluster.requests()["create", "configmaps"] == creations
    assert store.read().should_run and incident(store).state == incident_reports.WAITING
    lab.cluster.allow()
    until(lambda: lab.begins(store), "the trainer")
    assert store.read().incarnation == 1


@pytest.mark.parametrize("lab", [JobSet()], indirect=True)
def test_a_training_whose_operator_is_being_upgraded_waits_for_it(lab: Lab):
    lab.cluster.uninstall("jobset")
    try:
        store = lab.start_training()
        until(lambda: lab.is_refused(store), "the refusal")
        assert "the cluster has no jobsets.jobset.x-k8s.io" in lab.waits_for(store) and store.read().should_run
    finally:
        lab.cluster.install("jobset")
    until(lambda: lab.begins(store), "the trainer")


def test_a_training_that_is_stopped_while_its_start_is_refused_ends_and_waits_no_more(lab: Lab):
    lab.cluster.forbid("create", "jobs")
    store = lab.start_training()
    until(lambda: lab.is_refused(store), "the refusal")
    store.want("stop", "ada by hand", "enough")
    advance(lab.control, store)
    ended = store.exit()
    assert ended is not None and ended.outcome == "stopped"
    assert incident(store).state == incident_reports.OVER and not incident(store).todo


def test_a_start_whose_nodes_left_the_fleet_before_it_was_submitted_is_claimed_anew(lab: Lab):
    lab.cluster.add_nodes("node-7")
    store = lab.start_training()
    until(lambda: any(node.name == "node-7" for node in lab.fleet.nodes()), "the new node")
    assert lab.control.advance(store, BY) is Action.CLAIM
    lab.cluster.delete(NODES, "", "node-7")
    until(lambda: lab.begins(store), "the trainer of the next start")
    claim = store.newest_claim()
    assert claim is not None and claim.nodes == NODES_OF_THE_FLEET
    [ended] = store.read().failures
    assert ended.disrupted and "found the nodes node-7" in ended.reason and store.read().should_run
