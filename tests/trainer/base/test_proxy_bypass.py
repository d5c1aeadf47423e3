"""Which addresses are own ones, and what libraries read of them."""

import re
import urllib.request
from pathlib import Path

import pytest

from slipway.trainer.base import proxy_bypass
from tests.proxies import EXCLUDED, NAMES

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[3]
HOUSE = ("assets", "benchmarks", "cli", "deploy", "operations", "recipes", "resources", "sensors", "serving", "trainer")
OWN = ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]", "10.4.0.9", "192.168.1.2", "fe80::1%eth0",
       "slipway-mlflow", "front.slipway.svc", "mlflow.ml.svc.cluster.local", "")  # fmt: skip
OTHERS = ("example.org", "8.8.8.8", "localhost.example.org", "127.0.0.1.example.org", "2001:4860::8888")


def test_own_addresses_are_this_machines_a_private_networks_and_a_clusters():
    assert [host for host in OWN if not proxy_bypass.is_own(host)] == []
    assert [host for host in OTHERS if proxy_bypass.is_own(host)] == []


@pytest.mark.parametrize("name", NAMES)
def test_libraries_are_told_of_own_addresses_in_both_spellings_beside_what_the_user_excluded(name: str):
    environ = {name: "http://proxy.example:3128", "NO_PROXY": "intra.example", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    proxy_bypass.bypass(environ, "http://slipway-mlflow:5000", "https://mlflow.example")
    assert environ["no_proxy"] == environ["NO_PROXY"]
    excluded = environ["no_proxy"].split(",")
    assert excluded == ["intra.example", *proxy_bypass.NAMES, "slipway-mlflow", "10.0.0.1"]
    proxy_bypass.bypass(environ)
    assert environ["no_proxy"].split(",") == excluded, "once is enough"


def test_an_environment_without_a_proxy_or_that_excludes_everything_stays_as_it_is():
    for environ in (
        {"PATH": "/bin"},
        {"no_proxy": "x"},
        {"http_proxy": ""},
        {"http_proxy": "http://p:1", "no_proxy": "*"},
    ):
        before = dict(environ)
        proxy_bypass.bypass(environ)
        assert environ == before


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_urllib_understands_what_libraries_are_told(monkeypatch: pytest.MonkeyPatch, host: str):
    for name in EXCLUDED:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    proxy_bypass.bypass()
    assert urllib.request.proxy_bypass(f"{host}:3000")
    assert not urllib.request.proxy_bypass("example.org")


def test_no_request_is_made_but_by_what_knows_own_addresses():
    """`urlopen` takes the environment's proxy for every address."""
    makes = re.compile(r"\burlopen\(|\bbuild_opener\(|\brequests\.(get|post|Session)\(|trust_env=True")
    files = [path for folder in HOUSE for path in (ROOT / folder).rglob("*.py")]
    requesters = [str(path.relative_to(ROOT)) for path in files if makes.search(path.read_text())]
    allowed = {"trainer/base/proxy_bypass.py", "benchmarks/cases/personal.py"}  # the second is data
    assert sorted(set(requesters) - allowed) == []
