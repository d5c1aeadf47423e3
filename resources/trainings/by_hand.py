"""By hand: how the command starts a training, stops it, and starts it again.

The sensors of a running instance would take the same steps; here they are taken at once, so that no instance need run.
"""

import time

from slipway.resources.trainings import branching, course
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.resources.unavailable import Unavailable

MARGIN_SECONDS = 15.0
"""How much longer than its grace a job that was asked to stop may take to end."""
POLL_SECONDS = 0.2


def resume(trainings: Trainings, store: TrainingStore, by: str, why: str) -> None:
    """Want a stopped or failed training to run again.

    Raises ValueError when it has succeeded, and when what a branch begins from was removed meanwhile.
    """
    ended = store.exit()
    if ended is not None and ended.outcome == "succeeded":
        raise ValueError(f"training {store.id}: it has succeeded at step {ended.step}: there is nothing to resume")
    branching.hold_again(trainings, store)
    trainings.start(store, by, why)


def begin(control: TrainingControl, store: TrainingStore, by: str) -> str:
    """Take the steps that are due up to one that needs time; returns what it waits for, empty once a job is submitted.

    Raises Unavailable when the launcher or the fleet cannot be asked.
    """
    while control.advance(store, by) in (Action.CLAIM, Action.RECORD, Action.GIVE_UP, Action.SUBMIT):
        pass
    facts = store.read()
    waiting = None if control.status(facts).state.live else control.waiting(facts)
    return waiting.reason if waiting else ""


def grace_warning(store: TrainingStore) -> str:
    """Why a stop would lose steps: saves take longer than the grace; empty while that is not on record."""
    events = course.read(store.folder).events
    return next((str(each["reason"]) for each in reversed(events) if each["event"] == "grace_too_short"), "")


def stop(control: TrainingControl, store: TrainingStore, by: str, why: str) -> int:
    """Want a training stopped, and return when it is; the step of its newest checkpoint.

    Raises Unavailable when its job has not ended long after its grace.
    """
    store.want("stop", by, why)
    deadline = time.monotonic() + control.grace_of(store.read()) + MARGIN_SECONDS
    while control.advance(store, by) is not Action.DONE:
        if time.monotonic() > deadline:
            raise Unavailable(f"{store.id}: its job has not ended {MARGIN_SECONDS:.0f} s after its grace; ask again")
        time.sleep(POLL_SECONDS)
    commits = store.commits()
    return commits[-1].step if commits else 0
