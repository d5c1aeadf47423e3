"""The command on a cluster: the same verbs, through the resources that the platform's settings describe."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from slipway.cli.main import main
from slipway.resources.home import Home
from tests.cli import homes
from tests.kubernetes.simulated.cluster import Cluster

LABELS = {"slipway/fleet": "h200"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("kubernetes"), nodes=()) as cluster:
        cluster.add_nodes("node-0", "node-1", labels=LABELS, with_kubelet=False)
        yield cluster


@pytest.fixture
def durable(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The folders of a platform whose settings the environment names."""
    settings = {
        "slipway": "platform/1",
        "tiers": {"durable": str(tmp_path / "durable"), "nvme": "/nvme"},
        "tracking": {"uri": "http://mlflow"},
        "compute": {"kubeconfig": str(cluster.kubeconfig), "cluster": {"image": "trainer", "node_selector": LABELS}},
    }
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setenv("SLIPWAY_PLATFORM", str(tmp_path / "platform.yaml"))
    return Home(tmp_path)


def output_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = main(list(arguments))
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def test_the_nodes_are_those_of_the_cluster(durable: Home, capsys: pytest.CaptureFixture[str]):
    listed = json.loads(output_of(capsys, "nodes", "list", "--json"))
    assert [node["name"] for node in listed] == ["node-0", "node-1"]


def test_a_training_is_listed_shown_and_stopped(durable: Home, capsys: pytest.CaptureFixture[str]):
    store = homes.running(durable, "tiny", 50)
    [listed] = json.loads(output_of(capsys, "ls", "--json"))
    assert (listed["id"], listed["state"], listed["checkpoint"]) == (store.id, "missing", 50)
    assert output_of(capsys, "checkpoints", "verify", "tiny").startswith(f"{store.id}@50 is whole on the durable tier")
    assert output_of(capsys, "stop", "tiny").startswith(f"{store.id} is stopped at step 50")
    ended = store.exit()
    assert ended is not None and ended.outcome == "stopped"


def test_who_is_no_operator_looks_and_changes_nothing(
    durable: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    store = homes.running(durable, "tiny", 50)
    file = tmp_path / "platform.yaml"
    file.write_text(f"{file.read_text()}user_header: X-Forwarded-Email\noperators: [oda@x.example]\n")
    assert store.id in output_of(capsys, "ls", "--json")
    for verb in (["stop", "tiny"], ["nodes", "cordon", "node-0", "--why", "a test", "--apply"]):
        assert main(verb) == 1
        refused = capsys.readouterr().err
        assert "operators: found " in refused and "expected one of the platform's operators: oda@x.example" in refused
    assert store.exit() is None
    assert "node-0" in output_of(capsys, "nodes", "cordon", "node-0", "--why", "a test"), (
        "without --apply it only looks"
    )
    assert main(["nodes", "uncordon", "node-0", "--why", "a test"]) == 1
    assert "found an uncordoned node" in capsys.readouterr().err
    assert output_of(capsys, "upgrade", "--dry-run").startswith("nothing to do")


def test_what_is_for_the_embedded_instance_alone_says_so(durable: Home, capsys: pytest.CaptureFixture[str]):
    assert main(["nodes", "kill", "node-0"]) == 1
    assert capsys.readouterr().err.endswith(
        "found a cluster, expected an embedded instance: "
        "a node of a cluster is taken out of service with slipway nodes cordon\n"
    )
