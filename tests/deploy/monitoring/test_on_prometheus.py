"""On a real Prometheus and Alertmanager: every query of every dashboard has an answer, and a fault calls a person."""

import contextlib
import http.server
import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from slipway.deploy.monitoring import render, routes
from slipway.deploy.monitoring.foreign import FOREIGN
from slipway.operations.metrics.dagster import DagsterReader
from slipway.operations.metrics.serve import PlatformExporter, PlatformSources
from slipway.resources import embedded
from slipway.trainer.base import exporting
from tests.cli import homes
from tests.conftest import until
from tests.deploy.monitoring import others, seeded
from tests.deploy.monitoring.queries import QUERIES, metrics_of
from tests.deploy.monitoring.tools import tool

PATIENT = "10s"
pytestmark = pytest.mark.nightly  # two servers, and as long as a rate takes


def test_every_query_has_an_answer_and_a_fault_is_a_page(tmp_path: Path) -> None:
    prometheus, alertmanager = tool("prometheus"), tool("prometheus-alertmanager")
    home = homes.home(tmp_path / "home")
    (tmp_path / "dagster").mkdir()
    pages: list[str] = []
    with (
        dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as dagster,
        contextlib.ExitStack() as stack,
    ):
        store = seeded.seed(home, dagster)
        views = PlatformSources(
            home.durable,
            {"durable": home.durable},
            lambda: embedded.fleet(home),
            lambda: embedded.node_health(home),
        )
        exporter = exporting.server("127.0.0.1", 0, PlatformExporter(views, DagsterReader(dagster), jobs=True).text)
        scraped = stack.enter_context(_serving(exporter))
        beside = stack.enter_context(_serving(others.exporter()))
        pager = stack.enter_context(_serving(_pager(pages)))
        prometheus_address = stack.enter_context(_servers(tmp_path, prometheus, alertmanager, [scraped, beside], pager))
        assert len([query for query in QUERIES if not metrics_of(query) & set(FOREIGN)]) >= 60
        unanswered = list(QUERIES)
        numbers = iter(range(23, 1_000_000))

        def all_answered() -> bool:
            seeded.step(store, next(numbers))
            time.sleep(0.5)  # the next scrape is to find something new
            unanswered[:] = [query for query in unanswered if not _is_answered(_answer(prometheus_address, query))]
            return not unanswered

        with contextlib.suppress(AssertionError):
            until(all_answered, "an answer to every query")
        assert unanswered == []
        seeded.write(store, {"event": "commit_failed", "step": 99, "reason": "the tier is full"})
        begun = time.monotonic()
        page = until(lambda: next((body for body in pages if "CheckpointFails" in body), ""), "the page")
        print(f"from the fault to its page: {time.monotonic() - begun:.1f} s")
        (alert,) = json.loads(page)["alerts"]
        assert alert["labels"]["training"] == store.id
        assert alert["annotations"]["runbook_url"] == "docs/runbook.md#checkpointfails"


@contextlib.contextmanager
def _serving(server: http.server.ThreadingHTTPServer) -> Iterator[str]:
    """Run a server in a thread; gives host:port."""
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _pager(pages: list[str]) -> http.server.ThreadingHTTPServer:
    class Pager(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            pages.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    return http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pager)


@contextlib.contextmanager
def _servers(folder: Path, prometheus: str, alertmanager: str, scraped: list[str], pager: str) -> Iterator[str]:
    """Prometheus and Alertmanager with our rules and routes; gives Prometheus' address."""
    own, routing = _free(), _free()
    receivers = routes.Receivers(f"http://{pager}/page", f"http://{pager}/ticket")
    (folder / "alertmanager.yaml").write_text(json.dumps(routes.alertmanager(receivers)))
    (folder / "rules.yaml").write_text(render.files()[render.RENDERED / "rules.yaml"])
    config = routes.prometheus({"slipway": scraped}, [routing], ["rules.yaml"])
    for job in config["scrape_configs"]:  # a busy machine may take longer than the 2 s of a real installation
        job |= {"scrape_interval": PATIENT, "scrape_timeout": PATIENT}
    (folder / "prometheus.yaml").write_text(json.dumps(config))
    commands = (
        (alertmanager, "--config.file=alertmanager.yaml", "--storage.path=alerts", f"--web.listen-address={routing}",
         "--cluster.listen-address="),
        (prometheus, "--config.file=prometheus.yaml", "--storage.tsdb.path=series", f"--web.listen-address={own}"),
    )  # fmt: skip
    with (folder / "servers.log").open("wb") as log:
        running = [subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) for command in commands]
    try:
        for address in (own, routing):
            until(lambda address=address: _ready(address), f"{address} to be ready")  # type: ignore[misc]
        yield own
    finally:
        for process in running:
            process.kill()
            process.wait()


def _free() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _ready(address: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def _is_answered(series: list[Any]) -> bool:
    """Whether a panel would show something: a series with a number, which the quotient of two zeros is not."""
    return any(sample["value"][1] != "NaN" for sample in series)


def _answer(address: str, query: str) -> list[Any]:
    """The series that a query gives now."""
    parameters = urllib.parse.urlencode({"query": query})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{parameters}", timeout=30) as answer:
        series: list[Any] = json.load(answer)["data"]["result"]
        return series
