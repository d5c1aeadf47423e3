"""Cordon: which nodes may be taken out of service, which may not, and the record of each act."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from slipway.cli.main import main
from slipway.resources import identity
from slipway.resources.errors import Unavailable
from slipway.resources.fleet.kubernetes.cordon import CORDONED, EXEMPT, FOLDER, FORMAT, Cordon, limit
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import NODES, KubernetesObject
from slipway.trainer.base import codec
from tests.kubernetes.simulated.cluster import Cluster

LABELS = {"slipway/fleet": "h200"}
NAMES = tuple(f"node-{number}" for number in range(4))


def acts(durable: Path) -> list[dict[str, Any]]:
    """The records of all acts, the oldest first: the fields of `Act`, and `error` for one that failed."""
    return [codec.read(path, dict[str, Any], FORMAT) for path in sorted((durable / FOLDER).glob("*.json"))]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kubernetes"), nodes=()) as cluster:
        cluster.add_nodes(*NAMES, "elsewhere", labels=LABELS, with_kubelet=False)
        cluster.change(NODES, "", "elsewhere", lambda node: node["metadata"].update(labels={}))
        yield cluster


@pytest.fixture
def fleet(cluster: Cluster, tmp_path: Path) -> Cordon:
    for name in NAMES:
        cluster.change(NODES, "", name, _as_new)
    return Cordon(Client(str(cluster.kubeconfig)), LABELS, tmp_path)


def _as_new(node: KubernetesObject) -> None:
    node["spec"].pop("unschedulable", None)
    node["metadata"].update(labels=dict(LABELS), annotations={})


def is_cordoned(cluster: Cluster, name: str) -> bool:
    node = cluster.get(NODES, "", name)
    assert node is not None
    return bool(node["spec"].get("unschedulable"))


def annotations(cluster: Cluster, name: str) -> dict[str, str]:
    node = cluster.get(NODES, "", name)
    assert node is not None
    return node["metadata"].get("annotations") or {}


def test_without_apply_it_only_says_what_it_would_do(cluster: Cluster, fleet: Cordon):
    act = fleet.cordon("node-1", "ada", "Xid 79")
    assert str(act) == "would cordon node-1: Xid 79 (ada)"
    assert not is_cordoned(cluster, "node-1") and acts(fleet.durable) == []


def test_a_cordoned_node_says_who_did_it_and_why_and_so_does_the_record(cluster: Cluster, fleet: Cordon):
    act = fleet.cordon("node-1", "ada", "Xid 79", apply=True)
    assert str(act) == "cordoned node-1: Xid 79 (ada)"
    assert is_cordoned(cluster, "node-1")
    note = json.loads(annotations(cluster, "node-1")[CORDONED])
    assert note == {"who": "ada", "why": "Xid 79", "at": act.at}
    [record] = acts(fleet.durable)
    assert (record["verb"], record["node"], record["who"], record["why"]) == ("cordon", "node-1", "ada", "Xid 79")


def test_a_node_that_slipway_cordoned_can_be_uncordoned(cluster: Cluster, fleet: Cordon):
    fleet.cordon("node-1", "ada", "Xid 79", apply=True)
    fleet.uncordon("node-1", "ada", "new GPU")
    assert is_cordoned(cluster, "node-1")
    fleet.uncordon("node-1", "ada", "new GPU", apply=True)
    assert not is_cordoned(cluster, "node-1") and CORDONED not in annotations(cluster, "node-1")
    assert [record["verb"] for record in acts(fleet.durable)] == ["cordon", "uncordon"]


def test_a_node_that_a_person_cordoned_with_kubectl_is_left_alone(cluster: Cluster, fleet: Cordon):
    cluster.change(NODES, "", "node-1", lambda node: node["spec"].update(unschedulable=True))
    with pytest.raises(ValueError, match=r"node-1: Slipway has not cordoned it; use kubectl uncordon node-1"):
        fleet.uncordon("node-1", "ada", "it looks well", apply=True)
    with pytest.raises(ValueError, match="node-1: it is cordoned already, not by Slipway"):
        fleet.cordon("node-1", "ada", "to be sure", apply=True)
    assert is_cordoned(cluster, "node-1") and acts(fleet.durable) == []


def test_nothing_is_cordoned_twice(fleet: Cordon):
    fleet.cordon("node-1", "ada", "Xid 79", apply=True)
    with pytest.raises(ValueError, match="node-1: it is cordoned already, by ada: Xid 79"):
        fleet.cordon("node-1", "bob", "noise", apply=True)
    assert len(acts(fleet.durable)) == 1


def test_no_more_than_the_limit_is_cordoned_at_once(cluster: Cluster, fleet: Cordon):
    fleet.cordon("node-1", "ada", "Xid 79", apply=True)
    with pytest.raises(ValueError, match=r"node-2: node-1 are cordoned already, and at most 1 of 4 nodes may be"):
        fleet.cordon("node-2", "ada", "Xid 48", apply=True)
    assert not is_cordoned(cluster, "node-2")


@pytest.mark.parametrize(("nodes", "most"), [(1, 1), (2, 1), (19, 1), (20, 2), (32, 3), (1000, 100)])
def test_the_limit_is_a_tenth_of_the_fleet_and_one_at_least(nodes: int, most: int):
    assert limit(nodes) == most


def test_a_node_that_is_exempt_is_left_alone(cluster: Cluster, fleet: Cordon):
    cluster.change(NODES, "", "node-3", lambda node: node["metadata"]["labels"].update({EXEMPT: "never"}))
    with pytest.raises(ValueError, match=rf"node-3: its label {EXEMPT}=never"):
        fleet.cordon("node-3", "ada", "noise", apply=True)


def test_a_node_outside_the_fleet_is_refused(fleet: Cordon):
    with pytest.raises(ValueError, match="elsewhere: found no such node in the fleet, expected one of node-0, node-1"):
        fleet.cordon("elsewhere", "ada", "noise", apply=True)


def test_an_act_that_the_cluster_refuses_is_recorded_as_not_done(cluster: Cluster, fleet: Cordon):
    cluster.forbid("patch", "nodes")
    try:
        with pytest.raises((ValueError, Unavailable), match="cannot patch Node node-1"):
            fleet.cordon("node-1", "ada", "Xid 79", apply=True)
    finally:
        cluster.allow()
    intended, refused = acts(fleet.durable)
    assert (intended["applied"], refused["applied"]) == (True, False)
    assert "cannot patch Node node-1" in refused["error"] and not is_cordoned(cluster, "node-1")


def test_the_command_reads_the_settings_of_the_platform(
    cluster: Cluster, fleet: Cordon, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    settings = {
        "slipway": "platform/1",
        "tiers": {"durable": str(tmp_path), "nvme": "/nvme"},
        "tracking": {"uri": "http://mlflow"},
        "compute": {"kubeconfig": str(cluster.kubeconfig), "cluster": {"image": "trainer", "node_selector": LABELS}},
    }
    file = tmp_path / "platform.yaml"
    file.write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("SLIPWAY_PLATFORM", str(file))
    monkeypatch.setenv("LOGNAME", "ada")
    assert main(["nodes", "cordon", "node-1", "--why", "Xid 79", "--apply"]) == 0
    assert capsys.readouterr().out == f"cordoned node-1: Xid 79 ({identity.of_process()})\n", "whatever LOGNAME says"
    assert is_cordoned(cluster, "node-1")
    assert main(["nodes", "cordon", "node-9", "--why", "Xid 79"]) == 1
    assert capsys.readouterr().err.startswith("slipway: node node-9: found none that begins so, expected one of node-0")
