"""Recovery: supervisors, keepers and nodes die, and the training goes on from its newest good checkpoint."""

import os
import re
import signal
from pathlib import Path

import pytest

from slipway.resources.fleet import embedded
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.faults import TrainingFault
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.trainings.watch import ProgressWatch
from slipway.trainer.base import processes
from slipway.trainer.record import causes, fence, incidents
from slipway.trainer.record.incidents import IncidentRecord
from tests.conftest import Marked, until
from tests.resources.trainings.lab import BY, ENDLESS, Lab, advance, happened, numbers, until_committed, until_paced

AGAIN = [Action.RECORD, Action.CLAIM, Action.SUBMIT]
"""What is due after a job has died: its end is recorded, and the next incarnation is claimed and submitted."""
LONG = 3000
"""Steps of a training that is interrupted and then brought to its end: many times what a test takes to interfere."""


def kill_supervisor(marked: Marked) -> None:
    """The end of a job of one node; a rank that dies alone is forked anew by its supervisor."""
    [rank] = marked.running("slipway.trainer")
    supervisor = processes.parent_of(rank)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)


def incidents_of(store: TrainingStore) -> list[IncidentRecord]:
    return [incidents.read(store.folder, name) for name in incidents.names(store.folder)]


def steps_done(store: TrainingStore, incarnation: int) -> list[int]:
    return [event["step"] for event in happened(store, "step") if event["incarnation"] == incarnation]


@pytest.mark.slow
def test_a_killed_supervisor_leads_to_the_next_incarnation_from_the_newest_checkpoint(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    kill_supervisor(marked)
    assert [action for action in lab.advance(store, Action.SUBMIT) if action is not Action.WAIT] == AGAIN
    first, second = happened(store, "claimed")
    assert "SIGKILL" in second["cause"] and first["cause"] == "first start"
    assert [incident.kind for incident in incidents_of(store)] == [causes.KILLED]
    sealed = fence.newest_claim(store.folder).sealed  # type: ignore[union-attr]
    until(lambda: steps_done(store, 2), "the next step")
    lab.stopped(store)
    [restored] = happened(store, "restored")
    assert (restored["commit"], restored["incarnation"]) == (sealed[-1], 2)
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.incarnation) == ("stopped", 2)
    assert steps_done(store, 2) == list(range(restored["step"] + 1, ended.step + 1))


@pytest.mark.slow
def test_a_damaged_checkpoint_is_set_aside_and_the_one_before_continued_from(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store, 2)
    kill_supervisor(marked)
    lab.advance(store, Action.RECORD)
    *_, good, damaged = store.commits()
    (lab.durable / damaged.folder / "model-00000.safetensors").write_bytes(b"rust")
    lab.started(store)
    [restored] = until(lambda: happened(store, "restored"), "the next incarnation")
    [aside] = happened(store, "set_aside")
    assert aside["commit"] == damaged.name and "model-00000.safetensors" in aside["reason"]
    assert restored["commit"] == good.name
    assert damaged.name not in [commit.name for commit in store.commits()]
    lab.stopped(store)


@pytest.mark.nightly
def test_an_interrupted_training_learns_exactly_what_one_without_interruption_does(lab: Lab, marked: Marked):
    interrupted, uninterrupted = (
        lab.start_training(numbers(LONG, every=50)),
        lab.start_training(numbers(LONG, every=LONG)),
    )
    lab.started(interrupted)
    until_committed(interrupted)
    kill_supervisor(marked)
    lab.advance(interrupted)
    lab.advance(uninterrupted)
    last = [
        [event for event in happened(store, "step") if event["step"] == LONG] for store in (interrupted, uninterrupted)
    ]
    assert last[0][0]["loss"] == last[1][0]["loss"]


@pytest.mark.slow
def test_a_killed_keeper_leads_to_the_next_incarnation(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    [keeper] = marked.running("slipway.resources.launchers.local.keeper")
    os.kill(keeper, signal.SIGKILL)
    lab.advance(store, Action.SUBMIT)
    assert happened(store, "claimed")[1]["cause"] == "incarnation 1 failed: its keeper died"
    assert [incident.kind for incident in incidents_of(store)] == [causes.KILLED]
    until(lambda: len(marked.running("slipway.trainer")) == 1, "the one trainer")
    lab.stopped(store)


@pytest.mark.nightly
def test_failures_with_checkpoints_between_them_do_not_count_against_a_training(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS, every=20), failures=1)
    for incarnation in (1, 2):
        lab.started(store)
        until(lambda: incarnation in {commit.token.incarnation for commit in store.commits()}, "a checkpoint")  # noqa: B023
        kill_supervisor(marked)
        lab.advance(store, Action.RECORD)
    assert store.read().failures_without_checkpoint == 0
    lab.stopped(store)


@pytest.mark.slow
def test_progress_is_what_the_ranks_last_said_they_did(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    now = 0.0
    watch = ProgressWatch(clock=lambda: now)

    def age() -> float:
        facts = store.read()
        assert facts.claim is not None
        [sight] = watch.look(facts.folder, facts.claim.token, facts.beats)
        return sight.age

    assert age() == 0.0
    now = 40.0
    assert age() == 40.0
    os.kill(rank, signal.SIGCONT)
    until(lambda: age() == 0.0, "the rank to move")
    lab.stopped(store)


@pytest.mark.slow
def test_a_hang_in_an_exchange_names_the_rank_for_which_the_others_wait_and_its_node(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS, every=ENDLESS), nodes=2)
    lab.started(store)
    until_paced(store, ranks=2)
    stopped = marked.running("slipway.trainer")[-1]
    os.kill(stopped, signal.SIGSTOP)
    environment = Path(f"/proc/{stopped}/environ").read_bytes().decode().split("\0")
    [node] = [variable.partition("=")[2] for variable in environment if variable.startswith("SLIPWAY_NODE=")]
    now, written = 0.0, 0.0
    control = lab.control(watch=ProgressWatch(clock=lambda: now))

    def at() -> float:
        return max(beat.at for beat in store.read().beats if beat.node != node)

    def hang() -> TrainingFault | None:
        nonlocal now, written
        # What stands still is silent; the other rank says every second that it is still where it was.
        until(lambda: at() > written, "the next heartbeat of the rank that waits")
        now, written = now + 31, at()
        return control.fault(store.read(), lab.fleet.nodes())

    fault = until(hang, "the hang")
    assert fault and (fault.kind, fault.suspects) == (causes.HUNG, (node,))
    assert re.search(rf"rank \d on node-\d is in \w+ after step \d+; .* rank \d on {node} \(silent for", fault.cause)
    until(lambda: control.supersede(store, store.read(), fault, BY), "the evidence, and then the next incarnation")
    os.kill(stopped, signal.SIGCONT)
    lab.stopped(store)


@pytest.mark.slow
def test_a_store_that_cannot_be_read_or_written_is_no_hang(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(ENDLESS, every=ENDLESS))
    lab.started(store)
    until_paced(store)
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    now = 0.0
    control = lab.control(watch=ProgressWatch(clock=lambda: now))

    def after(seconds: float) -> TrainingFault | None:
        nonlocal now
        now += seconds
        return control.fault(store.read(), lab.fleet.nodes())

    assert after(0) is None
    beats = store.folder / "heartbeats"
    aside = beats.rename(store.folder / "aside")
    beats.write_text("a file where a folder should be")
    for _ in range(30):
        with pytest.raises(OSError, match="cannot be listed"):
            after(59)
    beats.unlink()
    aside.rename(beats)
    assert [after(0), after(59)] == [None, None]
    fault = after(59)
    assert fault is not None and fault.kind == causes.HUNG
    assert re.search(r"rank 0 on node-\d is (training|in \w+) after step", fault.cause)
    os.kill(rank, signal.SIGCONT)
    lab.stopped(store)


@pytest.mark.nightly
def test_a_killed_node_is_survived_on_the_other_one(lab: Lab, marked: Marked):
    store = lab.start_training(numbers(LONG, every=20), nodes=2)
    lab.started(store)
    until_committed(store)
    assert embedded.kill(lab.fleet.folder, "node-1")
    actions = lab.advance(store)
    assert actions[-1] is Action.DONE and Action.CLAIM not in actions, "the job goes on as a new generation"
    first, second = happened(store, "started")
    assert (first["world"], second["world"]) == (2, 1)
    claim, ended = store.newest_claim(), store.exit()
    assert claim is not None and claim.nodes == ("node-0",) and "node-1" in claim.cause
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", LONG)


@pytest.mark.slow
def test_a_lost_node_is_given_up_for_the_other_one(lab: Lab, marked: Marked):
    """The launcher still believes in the job when the fleet gives up its node: claim, stop, confirm, submit."""
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    lab.fleet.mark_lost("node-0", "a test")
    control = lab.control()
    assert control.supersede(store, store.read(), TrainingFault("node node-0 is lost: a test", ("node-0",)), BY)
    claim = store.newest_claim()
    assert claim is not None and (claim.token.incarnation, claim.nodes) == (2, ("node-1",))
    actions = advance(control, store, Action.SUBMIT)
    assert actions == [Action.STOP_OLDER, Action.SUBMIT]
    assert lab.launcher.poll(lab.job(store, 1)).state is JobState.STOPPED
    [restored] = until(lambda: happened(store, "restored"), "the next incarnation")
    lab.stopped(store)
    [incident] = happened(store, "incident")
    assert incident["cause"] == "node node-0 is lost: a test" and incident["nodes"] == ["node-0"]
    assert restored["commit"] in claim.sealed
    ended = store.exit()
    assert ended is not None and (ended.outcome, ended.incarnation) == ("stopped", 2)


def test_superseding_once_is_enough(lab: Lab):
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    for node in ("node-0", "node-1"):
        lab.fleet.mark_lost(node, "a test")
    assert not lab.control().supersede(store, store.read(), TrainingFault("no node is left to go to", ("node-0",)), BY)
    lab.fleet.restore("node-1")
    assert lab.control().supersede(store, store.read(), TrainingFault("a node is back", ("node-0",)), BY)
    lab.stopped(store)
    assert not lab.control().supersede(store, store.read(), TrainingFault("it has ended", ("node-0",)), BY)
    assert len(happened(store, "incident")) == 1


@pytest.mark.slow
def test_a_trainer_that_slept_through_its_supersession_commits_nothing_that_counts(lab: Lab, marked: Marked):
    """Nothing stops it but the fence: the control plane does not get to act before it wakes."""
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    sealed = [commit.name for commit in store.commits()]
    assert lab.control().supersede(store, store.read(), TrainingFault("no progress", ("node-0",)), BY)
    os.kill(rank, signal.SIGCONT)
    status = until(
        lambda: (job_status := lab.launcher.poll(lab.job(store))).state.terminal and job_status, "the trainer to end"
    )
    assert status and status.state is JobState.FAILED and "exit code 3" in status.reason
    assert [commit.name for commit in store.commits()] == sealed
    assert lab.control().advance(store, BY) is Action.SUBMIT
    lab.stopped(store)


@pytest.mark.slow
def test_a_commit_that_lands_after_the_next_claim_does_not_count(lab: Lab, marked: Marked):
    """The trainer had passed its check and was slow to write: the record is there, and no reader counts it."""
    store = lab.start_training(numbers(ENDLESS))
    lab.started(store)
    until_committed(store)
    [rank] = marked.running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    counted = [commit.name for commit in store.commits()]
    late = store.folder / "commits" / f"{ENDLESS - 1:09d}.000001.0000.json"
    newest = store.folder / "commits" / f"{counted[-1]}.json"
    assert lab.control().supersede(store, store.read(), TrainingFault("no progress", ("node-0",)), BY)
    late.write_bytes(newest.read_bytes())
    assert [commit.name for commit in store.commits()] == counted
    os.kill(rank, signal.SIGCONT)
    lab.stopped(store)
    assert [commit.name for commit in store.commits()] == counted
