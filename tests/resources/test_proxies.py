"""Nothing that is sent to an own address comes to the environment's proxy, whichever client sends it."""

import contextlib
import functools
import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slipway.deploy.embedded import instance
from slipway.resources import access, posting
from slipway.resources.kubernetes.client import Client
from slipway.resources.kubernetes.objects import NODES
from slipway.resources.notify.endpoints import Endpoint
from slipway.resources.notify.notices import NoticeMessage
from slipway.serving import client
from slipway.trainer.base import proxy_bypass
from slipway.trainer.objects.bucket import Bucket
from slipway.trainer.objects.peer import PeerOrigin
from tests.proxies import EXCLUDED, NAMES, Recorder, recorder

TOKEN = "an-invented-token-0123456789abcdef"
ENTRY = '{"locationOrLoadError": {"__typename": "RepositoryLocation"}}'
ANSWER = (
    b'{"data": {"workspaceOrError": {"locationEntries": [%s]}, "version": "1"}, "choices": [{"text": "ok"}],'
    b' "experiments": [], "items": [], "metadata": {}}' % ENTRY.encode()
)


class Own(http.server.ThreadingHTTPServer):
    """A server of this machine, which answers every client well."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.n_requests = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answer(http.server.BaseHTTPRequestHandler):
    def _answer(self) -> None:
        assert isinstance(self.server, Own)
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.n_requests += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    do_GET = do_POST = do_HEAD = _answer  # noqa: N815

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def own() -> Iterator[Own]:
    with Own() as serving:
        threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
        yield serving
        serving.shutdown()


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Recorder]:
    """The proxy of this process's environment, in every spelling."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv(access.TOKEN, str(tmp_path / "token"))
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with recorder() as listening:
        for name in EXCLUDED:
            monkeypatch.setenv(name, "")
        for name in NAMES:
            monkeypatch.setenv(name, listening.url)
        yield listening


def _graphql(url: str) -> None:
    from dagster_graphql import DagsterGraphQLClient

    proxy_bypass.bypass()  # as each of our commands does first
    DagsterGraphQLClient("127.0.0.1", port_number=int(url.rpartition(":")[2]))._execute("{ version }")


def _mlflow(url: str) -> None:
    from slipway.resources.mlflow import tracking

    tracking._client(url).search_experiments()


def _notice(url: str) -> None:
    proxy_bypass.bypass()
    Endpoint(url.replace("http://", "json://"), 1).send(NoticeMessage("a", "b", False))


def _api_server(url: str) -> None:
    kubeconfig = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    chosen = {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x"}
    file = Path(os.environ[access.TOKEN]).with_name("kubeconfig")
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **kubeconfig, **chosen}))
    Client(str(file)).list(NODES, {})


def _object_store(url: str) -> None:
    """The answer is none of an object store's, which does not matter here."""
    os.environ["AWS_ENDPOINT_URL"] = url
    with contextlib.suppress(Exception):
        Bucket("s3://corpora/a").open("one")


CLIENTS: dict[str, Callable[[str], object]] = {
    "the look whether the webserver is ready": instance._knows_definitions,
    "the client of served models": functools.partial(client.complete, document={"prompt": "a secret"}),
    "a post": lambda url: posting.post(url, b"{}", {}, 5, "a test"),
    "a peer": lambda url: PeerOrigin(url).open("shards/" + "0" * 64 + ".shard").read(1),
    "Dagster's client": _graphql,
    "MLflow's client": _mlflow,
    "a notification": _notice,
    "the client of Kubernetes": _api_server,
    "the client of object stores": _object_store,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_no_client_sends_what_is_for_this_machine_to_a_proxy(own: Own, proxy: Recorder, name: str):
    CLIENTS[name](own.url)
    assert own.n_requests > 0 and proxy.requests == []


def test_an_address_elsewhere_is_asked_by_the_proxy(proxy: Recorder):
    with pytest.raises(Exception, match="502"):
        posting.post("http://catalogue.example/api", b"{}", {}, 5, "a test")
    assert [request_line.split()[1] for request_line in proxy.requests] == ["http://catalogue.example/api"]
