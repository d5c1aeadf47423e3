"""Diagnosis: before a job that hangs is ended, its nodes say where its ranks are; what they said outlives the job."""

import os
import signal

import pytest

from resources.trainings import incidents
from resources.trainings.decision import Action
from resources.trainings.faults import TrainingFault
from tests.conftest import Marked, until
from tests.resources.trainings.lab import BY, ENDLESS, Lab, happened, numbers, until_committed
from trainer.diagnosis import folder
from trainer.record import causes
from trainer.record import incidents as records

HUNG = TrainingFault("no progress for 60 s", ("node-0", "node-1"), kind=causes.HUNG)


@pytest.mark.slow
def test_the_others_of_a_stopped_rank_show_the_exchange_in_which_they_wait_and_it_is_the_suspect(
    lab: Lab, marked: Marked
):
    store = lab.wanted(numbers(ENDLESS), nodes=2)
    lab.started(store)
    until_committed(store)
    ranks = {rank_of(pid): pid for pid in marked.running("trainer")}
    os.kill(ranks[1], signal.SIGSTOP)
    until(lambda: asleep(ranks[0]), "the other rank to wait for it")
    assert lab.control().supersede(store, store.read(), HUNG, BY)
    lab.advance(store, Action.SUBMIT)
    lab.launcher.release(lab.job(store, 1))
    found = {each.node: each for each in folder.manifests(store.folder, "000001.0000")}
    assert set(found) == {"node-0", "node-1"}
    (waits, other), (stopped, frozen) = (
        next((each, rank) for each in found.values() for rank in each.ranks if rank.rank == number) for number in (0, 1)
    )
    assert other.exchange and frozen.state == "stopped"
    written = folder.text(store.folder, "000001.0000", waits.node, "stacks.txt")
    assert "loop.py" in written and "train_step" in written
    assert "MemTotal" in folder.text(store.folder, "000001.0000", waits.node, "health.txt")
    assert '"heartbeats"' in folder.text(store.folder, "000001.0000", stopped.node, "figures.json")
    assert "it is stopped" in stopped.lacking["stacks of rank 1"]
    [suspect] = incidents.suspected(store.folder, "000001.0000")
    assert (suspect.rank, suspect.node) == (1, stopped.node) and "stopped" in suspect.why
    record = records.read(store.folder, "000001.0000")
    assert (record.kind, record.ranks, record.nodes) == (causes.HUNG, (1,), (stopped.node,))
    assert [event["id"] for event in happened(store, "incident")] == ["000001.0000"]
    assert sum(sum(each.files.values()) for each in found.values()) < 2 * folder.MOST_BYTES
    lab.stopped(store)


@pytest.mark.slow
def test_a_rank_that_crashes_leaves_its_stack_and_the_control_plane_its_incident(lab: Lab, marked: Marked):
    store = lab.wanted(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    [rank] = marked.running("trainer")
    os.kill(rank, signal.SIGSEGV)
    lab.advance(store, Action.RECORD)
    [manifest] = folder.manifests(store.folder, "000001.0000")
    assert [(each.rank, each.state) for each in manifest.ranks] == [(0, "ended")]
    assert "Fatal Python error: Segmentation fault" in folder.text(
        store.folder, "000001.0000", manifest.node, "stacks.txt"
    )
    record = records.read(store.folder, "000001.0000")
    assert "SIGSEGV" in record.reason and record.step > 0
    lab.stopped(store)


def rank_of(pid: int) -> int:
    """The rank of a process, from its environment."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        variables = dict(each.split(b"=", 1) for each in file.read().split(b"\0") if b"=" in each)
    return int(variables[b"RANK"])


def asleep(pid: int) -> bool:
    """Whether a process has done nothing for some looks: it waits for another."""
    ticks = set()
    for _ in range(20):
        with open(f"/proc/{pid}/stat") as file:
            ticks.add(file.read().rpartition(")")[2].split()[11])
        os.sched_yield()
    return len(ticks) == 1
