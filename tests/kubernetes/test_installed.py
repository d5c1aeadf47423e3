"""Installed by the documents on two small nodes: the demo's lane, an upgrade in the middle of a training, and roles."""

from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest

from slipway.resources.kubernetes.objects import KubernetesObject
from tests.conftest import until
from tests.kubernetes import installation
from tests.kubernetes.installation import (
    CONTROL,
    OPERATOR,
    PATIENCE,
    PROMOTER,
    REFUSED,
    TRAINING,
    VIEWER,
    Installation,
    pods,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]
installation.skip_without_what_it_needs()

DATASET, RECIPE, MODEL = "python_stdlib", "tiny_decoder", "slipway_tiny_decoder"
TRAININGS, CHAMPION = dg.AssetKey([RECIPE, "training"]), dg.AssetKey([RECIPE, "champion"])


@pytest.fixture(scope="module")
def installed() -> Iterator[Installation]:
    deployed = Installation()
    deployed.prepare()
    try:
        deployed.apply()
        yield deployed
    finally:
        installation.remove()


@pytest.fixture(scope="module")
def champion(installed: Installation) -> str:
    """The training that the demo's lane has led to, from documents to a champion; its id."""
    with installed.reached():
        dataset = [dg.AssetKey([DATASET, name]) for name in ("documents", "tokenizer", "snapshot", "suite")]
        installed.until_succeeded(installed.materialize(dataset))
        training = start(installed)
        installed.until(lambda: installed.materialized(CHAMPION), f"{training} to become the champion")
    return training


def test_the_lane_of_the_demo_ends_with_a_champion(installed: Installation, champion: str):
    with installed.reached():
        assert installed.materialized(CHAMPION) == [champion]


def test_an_upgrade_in_the_middle_of_a_training_leaves_its_pods_alone(installed: Installation, champion: str):
    with installed.reached():
        training = start(installed, "run.steps=1500")
    before, control = uids(until(lambda: running(training), f"the pods of {training}", PATIENCE)), uids(control_plane())
    for component in ("code", "daemon", "mlflow", "webserver"):
        installed.values[component]["resources"]["memoryRequest"] = "400Mi"
    installed.apply()
    assert not control & uids(control_plane()), "the upgrade replaces every pod of its own"
    assert uids(running(training)) == before, "the training is still in its middle"
    with installed.reached():
        installed.until(lambda: training in installed.materialized(TRAININGS), f"the end of {training}")
    assert uids(of_training(training)) <= before, "it ended with the pods that it began with"


def test_a_viewer_promotes_nothing(installed: Installation, champion: str):
    with installed.reached():
        assert promote(installed, VIEWER)["__typename"] == REFUSED


def test_an_operator_who_is_no_promoter_promotes_nothing(installed: Installation, champion: str):
    with installed.reached():
        assert installed.end(promote(installed, OPERATOR)["run"]["runId"]) == "FAILURE"


def test_a_promoter_promotes(installed: Installation, champion: str):
    with installed.reached():
        installed.until_succeeded(promote(installed, PROMOTER)["run"]["runId"])


def start(installed: Installation, *fields: str) -> str:
    """Start a training of the recipe as the launchpad does; its id."""
    before = set(installed.partitions(TRAININGS))
    config = {f"{RECIPE}_start_training": {"config": {"fields": list(fields)}}}
    assert installed.launched(OPERATOR, f"{RECIPE}_start", config)["__typename"] == "LaunchRunSuccess"
    [new] = installed.until(lambda: set(installed.partitions(TRAININGS)) - before, "the training")
    return new


def promote(installed: Installation, person: str) -> dict[str, Any]:
    config = {f"{MODEL}_promote_model": {"config": {"version": 1, "why": "it is the only one"}}}
    return installed.launched(person, f"{MODEL}_promote", config)


def of_training(training: str) -> list[KubernetesObject]:
    return pods(TRAINING, f"slipway/training={training}")


def running(training: str) -> list[KubernetesObject]:
    """The pods of a training, all of which run; none where some do not."""
    training_pods = of_training(training)
    return training_pods if all(pod["status"]["phase"] == "Running" for pod in training_pods) else []


def control_plane() -> list[KubernetesObject]:
    """The deployments' pods that do not end."""
    control_pods = pods(CONTROL, "slipway/component in (code,daemon,mlflow,webserver)")
    return [pod for pod in control_pods if "deletionTimestamp" not in pod["metadata"]]


def uids(pod_objects: list[KubernetesObject]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pod_objects}
