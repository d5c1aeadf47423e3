"""Where an incident stands: waits for a person, or was stopped by one, whoever's process wrote that down."""

import pytest

from resources.trainings import incident_reports, incidents
from resources.trainings.decision import Action
from resources.trainings.store import TrainingStore
from tests.resources.trainings.lab import BRIEF, Lab, numbers
from trainer.record import causes

ADA = "ada by hand"
"""As the record names a person's command."""


def failed(lab: Lab) -> TrainingStore:
    """A training whose first start failed as every other one would."""
    store = lab.wanted(numbers(BRIEF))
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


@pytest.mark.parametrize("by", [ADA, "ada, run 0b1c", "run 0b1c"])
def test_what_a_person_stopped_from_the_command_line_or_by_a_run_is_stopped_by_a_person(lab: Lab, by: str):
    store = failed(lab)
    store.want("stop", by, "enough")
    assert state(store) == incident_reports.STOPPED


def test_a_trial_that_its_sweep_ended_was_stopped_by_no_person(lab: Lab):
    store = failed(lab)
    store.want("stop", "sweep", "pruned", by_platform=True)
    assert state(store) != incident_reports.STOPPED
