"""Node demand: from a fleet without nodes to a training on the nodes that an autoscaler added for it."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from slipway.assets.sweeps.assets import open_sweep
from slipway.assets.sweeps.decisions import decide
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.recipes.load import Recipes, load
from slipway.resources.compute.kubernetes import KubernetesCompute
from slipway.resources.home import Home
from slipway.resources.kubernetes.cluster import Cluster as ClusterSettings
from slipway.resources.kubernetes.objects import JOBS, PODS, KubernetesObject
from slipway.resources.launchers.kubernetes import demand, placement
from slipway.resources.launchers.kubernetes.demand import DEMAND, KIND
from slipway.resources.launchers.kubernetes.demand import NODES as PLACEHOLDERS
from slipway.resources.launchers.kubernetes.node_shortage import Lack
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.decision import Action
from slipway.sensors.node_demand import node_demand
from tests.cli import homes
from tests.conftest import until
from tests.kubernetes.settings import settings
from tests.kubernetes.simulated.cluster import Cluster
from tests.kubernetes.simulated.kinds import NAMESPACES, PRIORITIES, SERVICE_ACCOUNTS
from tests.pod_security import violations
from tests.schemas import problems

NONE = Recipes()
SAMPLES = Path(__file__).parent.parent / "recipes" / "samples"
LABELS = {"slipway/fleet": "h200"}
CLUSTER_SETTINGS = {
    "image": "trainer",
    "service_account": "default",
    "node_selector": LABELS,
    "resources": {"cpu": "2", "memory": "1Gi"},
}
RICH = ClusterSettings(
    image="trainer",
    node_selector=LABELS,
    resources={"nvidia.com/gpu": "8", "cpu": "120"},
    demand_priority="slipway-demand",
    tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},),
)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "kubernetes").mkdir()
    with Cluster(tmp_path / "kubernetes", nodes=()) as cluster:
        cluster.create(NAMESPACES, "", {"metadata": {"name": "slipway"}})
        until(lambda: cluster.get(SERVICE_ACCOUNTS, "slipway", "default"), "the namespace's account")
        cluster.create(PRIORITIES, "", {"metadata": {"name": "slipway-demand"}, "value": -1})
        yield cluster


def platform(cluster: Cluster, tmp_path: Path, **more: object) -> tuple[Tiers, KubernetesCompute]:
    cluster_settings = {**CLUSTER_SETTINGS, "demand_priority": "slipway-demand", **more}
    compute = settings(kubeconfig=str(cluster.kubeconfig), launcher="job", cluster=cluster_settings)["compute"]
    return Tiers(durable=str(Home(tmp_path).durable), nvme="/mnt/nvme"), KubernetesCompute(settings=compute)


def tick(tiers: Tiers, compute: KubernetesCompute, recipes: Recipes = NONE) -> None:
    """Evaluate the sensor once."""
    with (
        dg.DagsterInstance.ephemeral() as instance,
        dg.build_sensor_context(instance, resources={"tiers": tiers, "compute": compute}) as context,
    ):
        node_demand(recipes.sweeps, recipes.trainings)(context)


def placeholders(compute: KubernetesCompute) -> list[int]:
    """How many each training has."""
    return [job["spec"]["parallelism"] for job in compute.launcher().client.list(JOBS, {KIND: PLACEHOLDERS})]


def until_shown(tiers: Tiers, compute: KubernetesCompute, expected: list[int], recipes: Recipes = NONE) -> None:
    """Evaluate the sensor until so many placeholders are there; at first it finds the mirror of the nodes empty."""

    def is_as_expected() -> bool:
        tick(tiers, compute, recipes)
        return placeholders(compute) == expected

    until(is_as_expected, f"placeholders: {expected}")


def test_a_training_without_nodes_shows_its_demand_until_an_autoscaler_has_added_them(cluster: Cluster, tmp_path: Path):
    tiers, compute = platform(cluster, tmp_path)
    store = homes.started(Home(tmp_path), "tiny")
    control = compute.control(tiers)
    assert control.advance(store, "test") is Action.WAIT, "a fleet without nodes is no mistake here"

    until_shown(tiers, compute, [2])

    def pending() -> list[KubernetesObject]:
        pods = compute.launcher().client.list(PODS, {DEMAND: store.id})
        return pods if len(pods) == 2 else []

    pods = until(pending, "the pods of the placeholders")
    assert pods and [pod["spec"].get("nodeName") for pod in pods] == [None, None]
    assert pods[0]["spec"]["nodeSelector"] == LABELS and pods[0]["spec"]["priorityClassName"] == "slipway-demand"
    cluster.add_nodes("node-0", labels=LABELS)  # what an autoscaler does
    assert control.advance(store, "test") is Action.CLAIM
    until_shown(tiers, compute, [])


def test_a_sweep_without_nodes_shows_the_demand_of_all_trials_that_are_to_begin(cluster: Cluster, tmp_path: Path):
    tiers, compute = platform(cluster, tmp_path)
    recipes = load(SAMPLES)
    recipe = recipes.sweeps["tiny-decoder"].model_copy(update={"sampler": "random"})
    subject = SearchSubject(recipe, recipes.trainings[recipe.training], "0" * 64, "1" * 64)
    store = open_sweep(subject, tiers)
    sweep = store.state()
    assert sweep is not None
    store.append(*decide(sweep, TrialSampler()))
    until_shown(tiers, compute, [recipe.parallel], recipes)
    cluster.add_nodes("node-0", labels=LABELS)
    until_shown(tiers, compute, [], recipes)


def test_placeholders_go_with_the_wish(cluster: Cluster, tmp_path: Path):
    tiers, compute = platform(cluster, tmp_path)
    store = homes.started(Home(tmp_path), "tiny")
    until_shown(tiers, compute, [2])
    store.want("stop", "test", "it is enough")
    until_shown(tiers, compute, [])


def test_no_placeholder_is_made_where_no_autoscaler_changes_the_fleet(cluster: Cluster, tmp_path: Path):
    _, compute = platform(cluster, tmp_path, demand_priority="")
    assert compute.node_demand() is None


def test_a_training_that_could_not_be_looked_at_keeps_its_placeholders(cluster: Cluster, tmp_path: Path):
    _, compute = platform(cluster, tmp_path)
    demand_manager = compute.node_demand()
    assert demand_manager is not None
    demand_manager.bring_to({"a": Lack(1, {}), "b": Lack(2, {})})
    demand_manager.bring_to({}, unknown={"b"})
    assert placeholders(compute) == [2]
    demand_manager.bring_to({"b": Lack(3, {})})
    demand_manager.bring_to({"b": Lack(3, {})})
    assert placeholders(compute) == [3], "as many as are lacking now"


def test_a_placeholder_asks_for_what_a_pod_of_the_training_asks_for_and_has_no_privilege():
    placeholder_job = demand.job("llama-5d54", Lack(4, {}), RICH)
    spec = placeholder_job["spec"]["template"]["spec"]
    assert problems(placeholder_job) == [] and violations(spec) == []
    assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8", "cpu": "120"}
    [apart] = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["topologyKey"] == placement.HOST
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
    assert "nodeAffinity" not in spec["affinity"], "a node that is to come has no name yet"


def test_nodes_that_are_being_measured_are_not_asked_for_again(cluster: Cluster, tmp_path: Path):
    tiers, compute = platform(cluster, tmp_path)
    compute = KubernetesCompute(settings={**compute.settings, "quarantine": {"preflight_joining": True}})
    homes.started(Home(tmp_path), "tiny")
    until_shown(tiers, compute, [2])
    cluster.add_nodes("node-0", labels=LABELS)
    until_shown(tiers, compute, [1])
