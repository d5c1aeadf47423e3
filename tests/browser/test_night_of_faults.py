"""After a night of faults a person opens the UI, and reads what happened, what it cost, and what is to be done.

The faults are real: a rank killed, a node without power, and a script that cannot work, which waits for a person.
"""

import itertools

import pytest

from slipway.assets import keys
from slipway.assets.incidents import OVERVIEW
from slipway.recipes.assignments import applied
from slipway.resources.fleet import embedded
from slipway.resources.trainings import incident_reports
from slipway.resources.trainings.incident_reports import OVER, WAITING, IncidentReport
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import causes
from slipway.trainer.record.fence import Token
from tests.browser.window import Window
from tests.drills import process_table, small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import kill, wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

STEPS = 5000


def test_a_person_reads_what_happened_what_it_cost_and_what_is_to_be_done(instance: Instance, window: Window):
    training, broken = _night(instance)
    rank, node = _reports(training)
    (hopeless, *_) = [report for report in _reports(broken) if report.state == WAITING]
    assert (rank.kind, node.kind) == (causes.KILLED, causes.DISRUPTED)
    _read_the_overview(instance, window, rank, node, hopeless)
    _read_an_incident(window, rank)
    _read_the_morning(instance, window, broken, rank, node)
    training.want("stop", "drill", "the night is over")
    wait_until(lambda: training.id not in instance.open_trainings(), "the training has stopped")


def _night(instance: Instance) -> tuple[TrainingStore, TrainingStore]:
    """A training that two faults interrupt, and one that fails for good."""
    script = applied(instance.recipes.all_trainings[small_recipes.SCRIPT], ["parameters.learning_rate=-1"])
    broken = instance.propose_recipe(script, "a rate below zero")
    instance.start_as_a_sensor_does(broken)
    wait_until(lambda: any(report.state == WAITING for report in _reports(broken)), "the script is given up")
    training = instance.propose(small_recipes.PAIR, "a night", steps=STEPS)
    instance.start_as_a_sensor_does(training)
    wait_until(training.commits, "a checkpoint is committed")
    kill([process_table.ranks(training.id)[1].pid])
    wait_until(lambda: _has_commit_of(training, Token(1, 1)), "it goes on")
    assert embedded.kill(instance.home.nodes, "node-1")
    wait_until(lambda: _has_commit_of(training, Token(1, 2)), "it goes on without the node")
    for store in (training, broken):
        wait_until(lambda store=store: _are_shown(instance, store), "the event log has the incidents")  # type: ignore[misc]
    return training, broken


def _read_the_overview(instance: Instance, window: Window, *reports: IncidentReport) -> None:
    """All of it is in sight when the page opens; nothing has to be clicked."""
    window.open(f"{instance.url}/assets/{'/'.join(OVERVIEW.path)}")
    window.until_shown("incidents in 24 hours", "1 waits for a person")
    causes_shown = [report.cause.splitlines()[0][:40] for report in reports]
    wait_until(lambda: all(cause in window.text() for cause in causes_shown), "the page names every cause")
    text = window.text()
    assert all(report.kind in text for report in reports)
    rank, node, hopeless = reports
    assert "node-1, rank 1" in text and hopeless.todo.replace("`", "") in text  # commands are shown as code
    assert incident_reports.cost(rank) in text
    assert f"disrupted: 1, {node.seconds_lost:,.1f} s lost" in text
    window.picture("incidents", height=1560)


def _read_an_incident(window: Window, report: IncidentReport) -> None:
    """The overview's link leads to the incident's own partition."""
    window.follow(report.name)
    window.until_shown("what_happened", report.cause)
    text = window.text()
    expected_rows = {
        "state": OVER,
        "to_be_done": "nothing",
        "kind": causes.KILLED,
        "nodes": "node-1",
        "ranks": "1",
        "seconds_lost": str(report.seconds_lost),
        "steps_lost": str(report.steps_lost),
        "action": report.action,
        "noticed_by": report.noticed_by,
    }
    assert {name: value for name, value in expected_rows.items() if not _shows(text, name, value)} == {}
    assert "on node-0, node-1 from step" in text
    window.picture("incident", height=1100)


def _read_the_morning(instance: Instance, window: Window, broken: TrainingStore, *over: IncidentReport) -> None:
    """The page of the night has all of it, and is red only where a person is needed."""
    window.open(f"{instance.url}/slipway/morning?hours=12")
    window.until_shown("Daily report")
    text, red = window.text(), window.page.locator("article.red").all_inner_texts()
    assert all(report.name.rpartition("-")[0] in text and report.kind in text for report in over)
    assert len(red) == 1 and broken.id in red[0], red
    window.picture("morning", height=1300)


def _shows(text: str, name: str, value: str) -> bool:
    """Whether a row of a page's table has this value."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (name, value) in itertools.pairwise(lines)


def _reports(store: TrainingStore) -> list[IncidentReport]:
    return incident_reports.of(store, store.read())


def _has_commit_of(store: TrainingStore, token: Token) -> bool:
    return any(commit.token == token for commit in store.commits())


def _are_shown(instance: Instance, store: TrainingStore) -> bool:
    """Whether each incident's partition says that it is over, or waits for a person."""
    key = keys.key(store.specification().recipe, "incident")
    states = {}
    for report in _reports(store):
        events = instance.materializations(key, report.name)
        states[report.name] = events[0].metadata["state"].value if events else None
    return bool(states) and set(states.values()) <= {OVER, WAITING}
