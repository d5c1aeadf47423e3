"""Duties belong to a life: what is wanted again while a sensor is at work on it stays owed, and no incident is lost."""

from collections.abc import Callable
from typing import Any

import pytest

from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.record import files
from tests.sensors.platform import BY, Platform


def stopped(platform: Platform) -> TrainingStore:
    """A training that was stopped, with every duty open."""
    store = platform.start_training(cause="another")
    store.claim(1, ("node-0",), "a test", BY)
    store.want("stop", BY, "a test")
    store.record_exit(1, "stopped", "asked to stop", BY)
    for node in ("node-0", "node-1"):
        platform.compute.fleet().mark_lost(node, "a test")
    return store


def meanwhile(act: Callable[[], object], call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, during which something else happens once."""
    pending_acts = [act]

    def slow(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        if pending_acts:
            pending_acts.pop()()
        return result

    return slow


@pytest.mark.parametrize(
    ("sensor", "duty", "owner", "name"),
    [
        ("job_watch", WorkQueue.RUN, TrainingControl, "overdue"),
        ("promotions", WorkQueue.PROMOTION, TrainingStore, "read"),
        ("metrics_shipping", WorkQueue.TRACKING, Tracking, "ship"),
    ],
)
def test_what_is_wanted_again_during_a_slow_call_stays_owed(
    tracked: Platform, monkeypatch: pytest.MonkeyPatch, sensor: str, duty: WorkQueue, owner: Any, name: str
):
    store = stopped(tracked)
    tracked.trainings.close(store.id, WorkQueue.CHECKPOINTS)
    if sensor == "job_watch":
        tracked.apply(sensor)  # shows how it ended; the next tick closes the duty
    again = lambda: tracked.trainings.start(store, BY, "after all", (duty,))  # noqa: E731
    monkeypatch.setattr(owner, name, meanwhile(again, getattr(owner, name)))
    tracked.apply(sensor)
    assert store.read().should_run and tracked.trainings.pending(duty) == [store.id]


def test_an_incarnation_that_was_superseded_without_its_exit_gets_one_and_is_shown(platform: Platform):
    store = stopped(platform)
    store.want("run", BY, "after all")
    store.claim(2, ("node-1",), "node node-0 is lost: the power is gone", BY)
    for path in (store.folder / "exits").iterdir():
        path.unlink()
    store.want("stop", BY, "a test")
    for _ in range(2):
        platform.apply("job_watch")
    assert files.numbered(store.folder, files.EXITS, 1).exists()
    observed = [
        {name: value.value for name, value in observation.metadata.items()}
        for observation in platform.observations(store.id)
    ]
    [incident] = [metadata for metadata in observed if "cause" in metadata]
    assert (incident["incarnation"], incident["cause"]) == (1, "node node-0 is lost: the power is gone")
