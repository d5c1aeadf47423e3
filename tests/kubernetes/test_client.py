"""The API server's answers over HTTP, good and bad, and what the client makes of each."""

import json
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from slipway.resources.errors import PlatformFault, Unavailable
from slipway.resources.kubernetes import client as client_module
from slipway.resources.kubernetes.answers import ObjectConflict, RefusedRequest
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import CONFIG_MAPS, JOBS, NODES, KubernetesObject
from slipway.resources.launchers.kubernetes.queues import POD_GROUPS
from slipway.resources.launchers.kubernetes.workloads.jobset import JOB_SETS
from tests.kubernetes.simulated.cluster import Cluster


def config_map(name: str, **labels: str) -> KubernetesObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


@pytest.fixture
def client(simulated: Cluster, namespace: str) -> Client:
    return Client(str(simulated.kubeconfig), namespace=namespace)


def test_an_object_is_created_once_and_then_found(client: Client):
    config_map_object = client.create(CONFIG_MAPS, config_map("one"))
    assert config_map_object is not None and config_map_object == client.get(CONFIG_MAPS, "one")
    assert client.create(CONFIG_MAPS, config_map("one")) is None


def test_a_missing_object_is_none_and_deleting_it_is_no_error(client: Client):
    assert client.get(CONFIG_MAPS, "one") is None
    assert not client.delete(CONFIG_MAPS, "one")
    assert client.log("nobody", "trainer", 10) is None
    with pytest.raises(RefusedRequest, match='configmaps "one" not found'):
        client.patch(CONFIG_MAPS, "one", {"data": {"a": "b"}})


def test_a_list_has_all_pages(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(client_module, "PAGE", 2)
    for number in range(5):
        client.create(CONFIG_MAPS, config_map(f"map-{number}", parity=str(number % 2)))
    assert {document["metadata"]["name"] for document in client.list(CONFIG_MAPS, {})} >= {f"map-{n}" for n in range(5)}
    assert [document["metadata"]["name"] for document in client.list(CONFIG_MAPS, {"parity": "1"})] == [
        "map-1",
        "map-3",
    ]
    assert client.requests["list configmaps"] > 2


def test_a_change_to_an_object_that_has_changed_meanwhile_is_a_conflict(client: Client):
    config_map_object = client.create(CONFIG_MAPS, config_map("one"))
    assert config_map_object is not None
    version = {"metadata": {"resourceVersion": config_map_object["metadata"]["resourceVersion"]}}
    changed = client.patch(CONFIG_MAPS, "one", {"data": {"a": "b"}, **version})
    assert changed["data"] == {"a": "b"}
    with pytest.raises(ObjectConflict, match="ConfigMap one"):
        client.patch(CONFIG_MAPS, "one", {"data": {"a": "c"}, **version})


def test_another_object_that_has_taken_the_name_is_not_deleted(client: Client):
    config_map_object = client.create(CONFIG_MAPS, config_map("one"))
    assert config_map_object is not None
    assert not client.delete(CONFIG_MAPS, "one", uid="another")
    assert client.delete(CONFIG_MAPS, "one", uid=config_map_object["metadata"]["uid"])
    assert client.get(CONFIG_MAPS, "one") is None


def test_a_kind_that_the_cluster_does_not_serve_is_named_with_what_installs_it(
    without_volcano: Cluster, client: Client
):
    assert client.serves(JOBS) and client.serves(JOB_SETS) and not client.serves(POD_GROUPS)
    message = "no podgroups.scheduling.volcano.sh of version v1beta1: install Volcano"
    with pytest.raises(Unavailable, match=message):
        client.get(POD_GROUPS, "one")
    with pytest.raises(PlatformFault, match=message):
        client.create(POD_GROUPS, {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": {"name": "x"}})


@pytest.fixture
def without_volcano(simulated: Cluster) -> Iterator[Cluster]:
    simulated.uninstall("volcano")
    yield simulated
    simulated.install("volcano")


@pytest.fixture
def forbidding(simulated: Cluster) -> Iterator[Cluster]:
    yield simulated
    simulated.allow()


def test_a_missing_permission_is_named_with_the_rule_that_grants_it(forbidding: Cluster, client: Client):
    forbidding.forbid("create", "configmaps")
    forbidding.forbid("get", "nodes")
    rule = r'a Role with the rule apiGroups \[""\], resources \["configmaps"\], verbs \["create"\]'
    with pytest.raises(PlatformFault, match=rf"serviceaccount.*cannot create.*configmaps.*{client.namespace}.*{rule}"):
        client.create(CONFIG_MAPS, config_map("one"))
    with pytest.raises(Unavailable, match=r'a ClusterRole with the rule .*\["nodes"\], verbs \["get"\]'):
        client.get(NODES, "node-0")


def test_a_pickled_client_opens_connections_of_its_own(client: Client):
    client.get(NODES, "node-0")
    other = pickle.loads(pickle.dumps(client))
    assert other == client and not other.requests
    assert other.get(NODES, "node-0") is not None


def test_without_a_kubeconfig_every_call_raises_unavailable(tmp_path: Path):
    with pytest.raises(Unavailable, match=r"nowhere"):
        Client(str(tmp_path / "nowhere")).get(NODES, "node-0")
    with pytest.raises(Unavailable, match="service account of this pod"):
        Client().get(NODES, "node-0")


class Scripted:
    """An API server that gives the answers of a test one after another, and then repeats the last."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.n_calls = 0

    def says(
        self, status: int, message: str = "", headers: dict[str, str] | None = None, **status_fields: object
    ) -> None:
        document = {"kind": "Status", "message": message, "code": status, **status_fields}
        self.answers.append((status, headers or {}, json.dumps(document).encode()))

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        self.n_calls += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, body = script.answer()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    (tmp_path / "kubeconfig").write_text(kubeconfig(server.server_address[1]))
    yield script
    server.shutdown()
    server.server_close()


def kubeconfig(port: int) -> str:
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "it", "user": {"token": "secret"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }
    )


@pytest.fixture
def stranger(tmp_path: Path) -> Client:
    """A client of the scripted server."""
    return Client(str(tmp_path / "kubeconfig"), timeout_seconds=5)


@pytest.mark.parametrize("status", [401, 409, 429, 500, 502, 503, 504])
def test_an_error_that_time_or_an_operator_mends_raises_unavailable(scripted: Scripted, stranger: Client, status: int):
    scripted.says(status, "not now", {"Retry-After": "0"})
    with pytest.raises(Unavailable, match="cannot get ConfigMap one in namespace slipway: not now"):
        stranger.get(CONFIG_MAPS, "one")
    with pytest.raises(Unavailable, match="cannot create ConfigMap one in namespace slipway: not now"):
        stranger.create(CONFIG_MAPS, config_map("one"))


def test_a_call_is_repeated_when_the_server_says_so(scripted: Scripted, stranger: Client):
    scripted.says(429, "too many requests", {"Retry-After": "0"})
    scripted.says(201, "made")
    answer = stranger.create(CONFIG_MAPS, config_map("one"))
    assert answer is not None and answer["message"] == "made" and scripted.n_calls == 2


def test_an_answer_that_is_not_json_raises_unavailable(scripted: Scripted, stranger: Client):
    scripted.answers.append((502, {}, b"<html>Bad Gateway</html>"))
    with pytest.raises(Unavailable, match="<html>Bad Gateway</html>"):
        stranger.get(CONFIG_MAPS, "one")


def test_the_message_names_the_wrong_fields(scripted: Scripted, stranger: Client):
    causes = [{"field": "spec.template.spec.containers[0].image", "message": "Required value"}]
    scripted.says(422, 'Job.batch "one" is invalid', details={"name": "one", "causes": causes})
    with pytest.raises(RefusedRequest, match=r"invalid; spec\.template\.spec\.containers\[0\]\.image: Required value"):
        stranger.create(JOBS, {"metadata": {"name": "one"}})


def test_a_webhook_that_denies_is_a_state_of_the_platform_under_whatever_status(scripted: Scripted, stranger: Client):
    for status in (400, 403, 422):
        scripted.says(status, 'admission webhook "policy.example.org" denied the request: no image tags')
        with pytest.raises(PlatformFault, match=r"denied the request: no image tags$"):
            stranger.create(JOBS, {"metadata": {"name": "one"}})
        scripted.answers.clear()
    scripted.says(500, 'Internal error occurred: failed calling webhook "mjob.kb.io": connect: connection refused')
    with pytest.raises(Unavailable, match="failed calling webhook"):
        stranger.create(JOBS, {"metadata": {"name": "one"}})


def test_a_quota_that_is_used_up_raises_unavailable(scripted: Scripted, stranger: Client):
    scripted.says(403, 'jobs.batch "one" is forbidden: exceeded quota: team, requested: count/jobs.batch=1')
    with pytest.raises(Unavailable, match="exceeded quota: team"):
        stranger.create(JOBS, {"metadata": {"name": "one"}})


def test_a_missing_namespace_is_a_state_of_the_platform(scripted: Scripted, stranger: Client):
    scripted.says(404, 'namespaces "slipway" not found', details={"name": "slipway", "kind": "namespaces"})
    with pytest.raises(PlatformFault, match='namespaces "slipway" not found'):
        stranger.create(CONFIG_MAPS, config_map("one"))


def test_a_server_that_is_away_raises_unavailable(tmp_path: Path):
    (tmp_path / "kubeconfig").write_text(kubeconfig(1))
    with pytest.raises(Unavailable, match="Connection refused"):
        Client(str(tmp_path / "kubeconfig")).list(CONFIG_MAPS, {})
