"""Where an incident stands: waits for a person, or was stopped by one, whoever's process wrote that down."""

import time
from pathlib import Path

import pytest

from slipway.resources.launchers.protocol import JobState, Status
from slipway.resources.trainings import faults, incident_reports, incidents
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.trainings.watch import Sight
from slipway.trainer.base import codec, journal
from slipway.trainer.record import causes, files, ledger
from slipway.trainer.record.claims import Token
from slipway.trainer.record.fence import Exit
from slipway.trainer.record.heartbeat import RankPlace
from tests.resources.trainings.lab import BRIEF, Lab, numbers

ADA = "ada by hand"
"""As the record names a person's command."""


def failed(lab: Lab) -> TrainingStore:
    """A training whose first start failed as every other one would."""
    store = lab.start_training(numbers(BRIEF))
    assert store.claim(1, ("node-0",), "first start", ADA)
    store.record_exit(1, "failed", "model: found 3 heads", ADA, ("node-0",), kind=causes.CONFIGURATION)
    ended = store.exit()
    assert ended is not None and incidents.note_failure(store, ended)
    return store


def state(store: TrainingStore) -> str:
    [report] = incident_reports.of(store, store.read())
    return report.state


def test_what_the_platform_gave_up_waits_for_a_person_also_when_a_persons_own_command_gave_it_up(lab: Lab):
    store = failed(lab)
    assert lab.control().advance(store, ADA) is Action.GIVE_UP
    assert state(store) == incident_reports.WAITING
    [report] = incident_reports.of(store, store.read())
    assert report.action.startswith("the training failed for good: a failure of class configuration is not")


@pytest.mark.parametrize("by", [ADA, "ada, run 0b1c", "run 0b1c"])
def test_what_a_person_stopped_from_the_command_line_or_by_a_run_is_stopped_by_a_person(lab: Lab, by: str):
    store = failed(lab)
    store.want("stop", by, "enough")
    assert state(store) == incident_reports.STOPPED


def test_a_trial_that_its_sweep_ended_was_stopped_by_no_person(lab: Lab):
    store = failed(lab)
    store.want("stop", "sweep", "pruned", by_platform=True)
    assert state(store) != incident_reports.STOPPED


@pytest.mark.parametrize("by_platform", [True, False])
def test_where_no_start_followed_none_is_announced(lab: Lab, by_platform: bool):
    """The record has what was meant to be when the incident was noticed."""
    store = lab.start_training(numbers(BRIEF))
    assert store.claim(1, ("node-0",), "first start", ADA)
    store.record_exit(1, "failed", "rank 1 was killed", ADA, ("node-0",), kind=causes.KILLED)
    ended = store.exit()
    assert ended is not None and incidents.note_failure(store, ended)
    [before] = incident_reports.of(store, store.read())
    assert before.action == incidents.RESTARTS and before.state == incident_reports.RECOVERING
    store.want("stop", ADA, "it was enough", by_platform=by_platform)
    [after] = incident_reports.of(store, store.read())
    assert after.action.startswith("the training failed for good: " if by_platform else "nothing more: ")


def hung_and_then_killed_while_it_started(lab: Lab) -> TrainingStore:
    """Ten steps, a hang, and a second start whose node died before any of its ranks had begun."""
    store, began = lab.start_training(numbers(BRIEF)), time.time() - 20
    assert store.claim(1, ("node-0", "node-1"), "first start", ADA)
    with journal.Journal(store.folder / files.LEDGER / f"{Token(1)}.rank-0.jsonl") as ranks:
        ranks.append(*({"event": "step", "t": began + step, "step": step} for step in range(1, 11)))
    store.record_exit(1, "failed", "no progress for 20 s", ADA, ("node-0", "node-1"), kind=causes.HUNG)
    assert store.claim(2, ("node-0",), "incarnation 1 failed", ADA)
    store.record_exit(2, "failed", "node-0 died", ADA, ("node-0",), kind=causes.KILLED)
    assert store.claim(3, ("node-0",), "incarnation 2 failed", ADA)
    return store


def test_the_steps_that_are_done_again_are_reported_of_the_incident_that_took_them_back_once_a_start_goes_on(lab: Lab):
    store = hung_and_then_killed_while_it_started(lab)
    hung, killed = incident_reports.of(store, store.read())
    assert (hung.state, hung.steps_lost, hung.final) == (incident_reports.OVER, None, False)
    assert "lost until the next incident" in incident_reports.cost(hung)
    ledger.note(store.folder, Token(3), "rank-0", "restored", step=8, commit="x", seconds=0.1)
    ledger.note(store.folder, Token(3), "rank-0", "step", step=9, loss=2.0, seconds=1.0)
    hung, killed = incident_reports.of(store, store.read())
    assert (hung.steps_lost, killed.steps_lost) == (2, 0)
    assert (hung.final, killed.final) == (True, True)


def test_what_a_person_is_to_do_names_commands_with_their_training_and_recipe(lab: Lab):
    store = failed(lab)
    lab.control().advance(store, ADA)
    [report] = incident_reports.of(store, store.read())
    assert report.todo.endswith(f"then `slipway run {report.recipe}`")
    for kind in causes.CAUSES:
        assert "{" not in incident_reports.to_do(kind, "a", "b", 0) + incident_reports.to_do(kind, "a", "b", 50)


def test_the_post_mortem_has_the_whole_cause_and_no_frames_of_c_in_its_logs(lab: Lab):
    store = lab.start_training(numbers(BRIEF))
    assert store.claim(1, ("node-0",), "first start", ADA)
    cause = "the job's store does not answer" + ", and it was asked again" * 10
    store.record_exit(1, "failed", cause, ADA, ("node-0",), kind=causes.NETWORK)
    log = "\n".join(["what it was", *(f"frame #{number}: c10d::f() (0x7f)" for number in range(20))])
    codec.create_only(files.numbered(store.folder, files.LOG_TAILS, 1), {"node-0": log})
    [report] = incident_reports.of(store, store.read())
    page = incident_reports.post_mortem(store, report)
    assert cause in page and "what it was" in page and "frame #" not in page


def began_with(tmp_path: Path, *sights: Sight) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The ranks and nodes that the incident of a hang names, where the nodes left no evidence."""
    nodes = tuple(dict.fromkeys(sight.node for sight in sights))
    hang = faults.stuck(Status(JobState.RUNNING, nodes=nodes), sights, lambda _: 600.0, 10.0)
    assert hang is not None
    ended = Exit(1, "failed", hang.cause, 41, "the sensor", 0.0, hang.nodes, kind=hang.kind)
    return incidents.began_with(tmp_path, Token(1), ended, [])


def hangs(rank: int, section: str, age: float = 12.0) -> Sight:
    return Sight(rank, RankPlace("training", 41), age, section, 0.1, f"node-{rank}")


@pytest.mark.parametrize("section", ["communication", "forward"])
def test_a_hang_of_ranks_that_are_all_alike_is_blamed_on_none_of_them(tmp_path: Path, section: str):
    """The sentence names the one that waits the longest; where an exchange fails, the nodes are to be bisected."""
    assert began_with(tmp_path, hangs(0, section), hangs(1, section, 14.0)) == ((), ())


def test_a_hang_is_blamed_on_the_rank_that_is_not_in_the_exchange_of_the_others(tmp_path: Path):
    assert began_with(tmp_path, hangs(0, "communication", 14.0), hangs(1, "forward")) == ((1,), ("node-1",))


def test_of_a_hang_on_one_node_the_node_is_known(tmp_path: Path):
    assert began_with(tmp_path, hangs(0, "forward")) == ((), ("node-0",))
