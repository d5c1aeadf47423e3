"""Diagnosis: before a job that hangs is ended, its nodes say where its ranks are; what they said outlives the job."""

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from slipway.resources.trainings import incident_reports, incidents
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.faults import TrainingFault
from slipway.trainer.diagnosis import folder
from slipway.trainer.diagnosis.ranks import RankSeen
from slipway.trainer.record import causes
from slipway.trainer.record import incidents as records
from tests.conftest import Marked, until
from tests.resources.trainings.lab import BY, ENDLESS, Lab, happened, numbers, until_committed, until_paced

HUNG = TrainingFault("no progress for 60 s", ("node-0", "node-1"), kind=causes.HUNG)


INCIDENT = "000001.0000"


@pytest.mark.slow
def test_the_others_of_a_stopped_rank_show_the_exchange_in_which_they_wait_and_it_is_the_suspect(
    lab: Lab, marked: Marked
):
    store = lab.start_training(numbers(ENDLESS, every=ENDLESS), nodes=2)
    lab.started(store)
    until_paced(store, ranks=2)
    pid, other = marked.running("slipway.trainer")
    os.kill(pid, signal.SIGSTOP)
    until(lambda: asleep(other), "the other rank to wait for it")
    begun = time.monotonic()
    assert not lab.control().supersede(store, store.read(), HUNG, BY), "its nodes are asked first"
    assert time.monotonic() - begun < incidents.DIAGNOSIS_SECONDS, "and nobody waits for them"
    until(lambda: lab.control().supersede(store, store.read(), HUNG, BY), "the nodes to answer")
    lab.advance(store, Action.SUBMIT)
    lab.launcher.release(lab.job(store, 1))
    manifests = folder.manifests(store.folder, INCIDENT)
    assert [manifest.node for manifest in manifests] == ["node-0", "node-1"]
    frozen, waiting_rank = (seen_rank(manifests, process) for process in (pid, other))
    assert frozen.rank.state == "stopped" and waiting_rank.rank.exchange
    written = folder.text(store.folder, INCIDENT, waiting_rank.node, "stacks.txt")
    assert "loop.py" in written and "train_step" in written
    assert "MemTotal" in folder.text(store.folder, INCIDENT, waiting_rank.node, "health.txt")
    assert '"heartbeats"' in folder.text(store.folder, INCIDENT, frozen.node, "figures.json")
    assert "it is stopped" in frozen.missing_evidence[f"stacks of rank {frozen.rank.rank}"]
    [suspect] = incidents.suspected(store.folder, INCIDENT)
    assert (suspect.rank, suspect.node) == (frozen.rank.rank, frozen.node) and "stopped" in suspect.why
    record = records.read(store.folder, INCIDENT)
    assert (record.kind, record.ranks, record.nodes) == (causes.HUNG, (frozen.rank.rank,), (frozen.node,))
    assert [event["id"] for event in happened(store, "incident")] == [INCIDENT]
    assert sum(sum(manifest.files.values()) for manifest in manifests) < 2 * folder.MOST_BYTES
    lab.stopped(store)


@pytest.mark.slow
def test_a_rank_that_crashes_leaves_its_stack_while_the_ranks_start_anew(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSEGV)
    [manifest] = until(lambda: folder.manifests(store.folder, INCIDENT), "the evidence")
    assert [(seen_rank.pid, seen_rank.state) for seen_rank in manifest.ranks] == [(rank, "ended")]
    assert "Fatal Python error: Segmentation fault" in folder.text(store.folder, INCIDENT, manifest.node, "stacks.txt")
    record = records.read(store.folder, INCIDENT)
    assert "SIGSEGV" in record.reason and record.ranks == (0,)

    def over() -> bool:
        [report] = incident_reports.of(store, store.read())
        return report.state == incident_reports.OVER

    until(over, "the training to go on")
    [report] = incident_reports.of(store, store.read())
    assert report.resumed == "000001.0001" and report.seconds_lost is not None
    assert report.seconds_lost < 300 and {"starting", "restoring"} <= report.seconds.keys()
    lab.stopped(store)


@dataclass(frozen=True)
class SeenRank:
    """A rank of a diagnosis, and the node that reported it."""

    rank: RankSeen
    node: str
    missing_evidence: Mapping[str, str]


def seen_rank(manifests: list[folder.DiagnosisManifest], pid: int) -> SeenRank:
    """The rank of this process."""
    [only] = [
        SeenRank(rank, manifest.node, manifest.missing)
        for manifest in manifests
        for rank in manifest.ranks
        if rank.pid == pid
    ]
    return only


def asleep(pid: int) -> bool:
    """Whether a process has done nothing for some looks: it waits for another."""
    ticks = set()
    for _ in range(20):
        with open(f"/proc/{pid}/stat") as file:
            ticks.add(file.read().rpartition(")")[2].split()[11])
        os.sched_yield()
    return len(ticks) == 1
