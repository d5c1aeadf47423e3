"""A training in which nothing changes is not read again in each tick, and what changes in it is seen at once."""

from collections.abc import Callable

import pytest

from slipway.resources.trainings.store import TrainingStore
from tests.accesses import accesses
from tests.conftest import until
from tests.sensors.platform import Platform

pytestmark = pytest.mark.slow


@pytest.fixture
def running(platform: Platform) -> TrainingStore:
    """A training whose ranks have begun, with a run that shows it."""
    store = platform.start_training(run={"steps": 1_000_000})
    [request] = platform.apply("job_watch")
    platform.queue(request)
    until(lambda: store.read().begun, "a rank to have begun")
    return store


def rests(platform: Platform, sensor: str, store: TrainingStore) -> Callable[[], bool]:
    """Whether a tick opens no file of the training."""

    def tick() -> bool:
        with accesses.below(store.folder) as counts:
            platform.apply(sensor)
        return not [path for path in counts if path.endswith(".json")]

    return tick


def test_the_job_watch_leaves_a_training_alone_that_goes_on_and_sees_that_it_is_to_stop(
    platform: Platform, running: TrainingStore
):
    until(rests(platform, "job_watch", running), "a tick to read nothing of the training")
    running.want("stop", "a test", "to be seen")
    until(lambda: platform.apply("job_watch") or running.exit(), "the training to be stopped")
    ended = running.exit()
    assert ended is not None and ended.outcome == "stopped"


def test_node_failures_leaves_a_training_alone_that_goes_on_and_sees_that_its_node_is_lost(
    platform: Platform, running: TrainingStore
):
    until(rests(platform, "node_failures", running), "a tick to read nothing of the training")
    claim = running.newest_claim()
    assert claim is not None
    platform.compute.fleet().mark_lost(claim.nodes[0], "a test")
    platform.apply("node_failures")
    again = running.newest_claim()
    assert again is not None and again.token.incarnation == 2 and "is lost: a test" in again.cause
    platform.stopped(running)
