"""People sign in by a real oauth2-proxy and a real dex, with the flags that the chart gives them, to a real webserver.

Both programs are looked for on PATH. The test's ingress ends TLS; the names of Services become ports of this machine.
"""

import functools
import json
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slipway.resources import access, identity
from slipway.trainer.base import host_names
from tests.conftest import until
from tests.deploy.browser import Browser, Page
from tests.deploy.rendering import IDENTITY
from tests.deploy.test_identity import proxy_arguments
from tests.drills.graphql import LAUNCH
from tests.kubernetes import settings
from tests.resources.served import LOCATION, Served, served

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not (shutil.which("oauth2-proxy") and shutil.which("dex")), reason="expected oauth2-proxy and dex on PATH"
    ),
]
TOKEN = "0123456789abcdef-the-token"
PASSWORD, HASHED = "a password", "$2b$10$Gwa2NRcITV4pvoXP6XGLqOx9AIwa2c5Ex6ony5FETE..ibtoyKwK2"
VIEWER, OPERATOR, PROMOTER = "vic@x.example", "oda@x.example", "pia@x.example"
HOST = IDENTITY["identity"]["hosts"]["webserver"]
UI, LOGIN = f"https://{HOST}", IDENTITY["identity"]["issuer"]
SECRET = "the-secret-of-the-client"


@dataclass(frozen=True)
class SignInStack:
    """The pages behind the proxy, and the hosts of the ingress."""

    webserver: Served
    hosts: dict[str, int]

    def browser(self, email: str = "") -> Browser:
        """A browser; with an e-mail, of the person who has signed in."""
        visitor = Browser(self.hosts)
        if email:
            opened = visitor.sign_in(f"{UI}/slipway", email, PASSWORD)
            assert (opened.status, opened.url) == (200, f"{UI}/slipway"), opened
        return visitor

    def tags(self, run: str) -> dict[str, str]:
        return dict(self.webserver.tags(run))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignInStack]:
    folder = tmp_path_factory.mktemp("signed-in")
    (folder / "durable").mkdir()
    (folder / "token").write_text(TOKEN)
    people = {"user_header": "X-Forwarded-User", "operators": [OPERATOR], "promoters": [PROMOTER]}
    document = {**settings.settings(folder / "durable", folder / "nvme"), **people}
    proxy, issuer = free_ports(2)
    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("SLIPWAY_PLATFORM", str(settings.write(folder / "platform.yaml", document)))
        environ.setenv(access.TOKEN, str(folder / "token"))
        environ.setenv(host_names.VARIABLE, HOST)  # as the chart sets it
        with served(folder) as webserver:
            commands = [dex(folder, issuer), oauth2_proxy(folder, proxy, issuer, webserver.port)]
            processes = [started(folder, command) for command in commands]
            try:
                for port, path in ((issuer, "/healthz"), (proxy, "/ping")):
                    until(functools.partial(answers, port, path), f"{path} of {port}: see {folder}", 120)
                yield SignInStack(webserver, {HOST: proxy, "login.example": issuer})
            finally:
                for process in processes:
                    process.kill()
                    process.wait()


def free_ports(count: int) -> list[int]:
    """Ports that were free at once."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server_socket.getsockname()[1] for server_socket in sockets]
    for server_socket in sockets:
        server_socket.close()
    return ports


def dex(folder: Path, port: int) -> list[str]:
    """The issuer: three people with a password."""
    people = [
        {"email": email, "hash": HASHED, "username": email, "userID": email} for email in (VIEWER, OPERATOR, PROMOTER)
    ]
    client = {"id": "slipway", "name": "Slipway", "secret": SECRET, "redirectURIs": [f"{UI}/oauth2/callback"]}
    document = {
        "issuer": LOGIN,
        "storage": {"type": "memory"},
        "web": {"http": f"127.0.0.1:{port}"},
        "oauth2": {"skipApprovalScreen": True},
        "staticClients": [client],
        "enablePasswordDB": True,
        "staticPasswords": people,
    }
    file = folder / "dex.yaml"
    file.write_text(json.dumps(document))  # JSON is YAML
    return ["dex", "serve", str(file)]


def oauth2_proxy(folder: Path, port: int, issuer: int, webserver: int) -> list[str]:
    """The proxy with the chart's own flags; what is an address of the cluster there is one of this machine here."""
    file = folder / "oauth2-proxy.cfg"
    secrets = {"client_secret": SECRET, "cookie_secret": "0123456789abcdef0123456789abcdef"}
    file.write_text(
        "".join(f'{name} = "{value}"\n' for name, value in {**secrets, "basic_auth_password": TOKEN}.items())
    )
    local_addresses = {
        "/secrets/proxy/oauth2-proxy.cfg": str(file),
        "http://slipway-webserver:80": f"http://127.0.0.1:{webserver}",
        "http://slipway-dex:5556": f"http://127.0.0.1:{issuer}",
        "0.0.0.0:4180": f"127.0.0.1:{port}",
    }
    arguments = [f"{name}={value}" for name, value in proxy_arguments()["webserver"].items()]
    for there, local_address in local_addresses.items():
        assert any(there in word for word in arguments), there
        arguments = [word.replace(there, local_address) for word in arguments]
    return ["oauth2-proxy", *arguments]


def started(folder: Path, command: list[str]) -> "subprocess.Popen[bytes]":
    with (folder / f"{command[0]}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)


def answers(port: int, path: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def launch(browser: Browser, **headers: str) -> Any:
    """Press the button that launches a job."""
    params = {
        "selector": {**LOCATION, "jobName": "a_job"},
        "runConfigData": {},
        "executionMetadata": {"tags": [{"key": identity.USER_TAG, "value": "somebody@x.example"}]},
    }
    answer = browser.post(f"{UI}/graphql", {"query": LAUNCH, "variables": {"params": params}}, **headers)
    assert answer.status == 200, answer
    return answer.json()


def run_of(answer: dict[str, Any]) -> str:
    """The run that was launched."""
    [payload] = answer["data"].values()
    return str(payload["run"]["runId"])


def refused(answer: dict[str, Any]) -> bool:
    """Whether nothing was launched, with the sentence that says for whom."""
    return answer["data"] is None and f"found {VIEWER}, expected one of the" in answer["errors"][0]["message"]


def is_login(page: Page) -> bool:
    return page.url.startswith(LOGIN) and 'name="password"' in page.text


def test_a_stranger_comes_no_further_than_the_issuers_form(stack: SignInStack):
    assert is_login(stack.browser().ask(f"{UI}/slipway"))
    assert is_login(stack.browser().ask(f"{UI}/slipway", X_Forwarded_User=OPERATOR, Authorization="Basic b2RhOg=="))
    sent = stack.browser().post(f"{UI}/graphql", {"query": "{__typename}"}, Accept="application/json")
    assert "data" not in sent.text


def test_a_wrong_password_does_not_sign_in(stack: SignInStack):
    page = stack.browser().sign_in(f"{UI}/slipway", OPERATOR, "another password")
    assert page.url.startswith(LOGIN)


def test_a_viewer_sees_the_pages_and_launches_nothing(stack: SignInStack):
    browser = stack.browser(VIEWER)
    assert browser.ask(f"{UI}/slipway").status == 200
    assert refused(launch(browser))


@pytest.mark.parametrize("person", [OPERATOR, PROMOTER])
def test_who_launched_a_run_is_on_its_record_whatever_they_type(stack: SignInStack, person: str):
    run = run_of(launch(stack.browser(person), X_Forwarded_User=VIEWER, X_Forwarded_Email=VIEWER))
    assert stack.tags(run)[identity.USER_TAG] == person


def test_a_viewer_who_names_an_operator_in_a_header_stays_a_viewer(stack: SignInStack):
    assert refused(launch(stack.browser(VIEWER), X_Forwarded_User=OPERATOR))


def test_only_a_promoter_decides_about_champions(stack: SignInStack):
    def refusal(person: str) -> str:
        run = run_of(launch(stack.browser(person)))
        dagster_run = stack.webserver.instance.get_run_by_id(run)
        assert dagster_run is not None
        return identity.refusal(identity.of_run(dagster_run), [PROMOTER])

    assert refusal(PROMOTER) == ""
    assert refusal(OPERATOR) == f"found {OPERATOR}, expected one of the platform's promoters: {PROMOTER}"
