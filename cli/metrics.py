"""Metrics: what the platform exports for Prometheus, served over HTTP or printed once."""

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from slipway.cli import command_context, output
from slipway.cli.verbs import group, verb

if TYPE_CHECKING:
    from slipway.operations.metrics.serve import PlatformExporter

app = group("Metrics for Prometheus: serve, show, render.")

Jobs = Annotated[
    bool, typer.Option("--jobs", help="With the figures of running trainings, where nothing scrapes their nodes.")
]


@verb(app, "slipway metrics serve --port 9465 --jobs")
def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 9465,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    jobs: Jobs = False,
) -> None:
    """Serve /metrics, /live and /health until Ctrl-C.

    Read-only. A scrape reads what is new; a part that cannot be read is named in slipway_unreadable.
    """
    from slipway.trainer.base import exporting

    with _exporter(jobs) as exporter:
        served = exporting.server(host, port, exporter.text, exporter.problems)
        print(f"metrics are at http://{host}:{served.server_address[1]}/metrics", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            served.serve_forever()


@verb(app, "slipway metrics show --jobs")
def show(jobs: Jobs = False) -> None:
    """Print once what a scrape gets."""
    with output.progress("reading the platform"), _exporter(jobs) as exporter:
        text = exporter.text()
    print(text, end="")


@verb(app, "slipway metrics render")
def render() -> None:
    """Make the rules, routes and dashboards anew.

    From deploy/monitoring/, with the tables of docs/monitoring.md and the alerts of docs/runbook.md.
    """
    from slipway.deploy.monitoring import render as made

    for path in made.write():
        print(path)


@contextlib.contextmanager
def _exporter(jobs: bool) -> "Iterator[PlatformExporter]":
    """The exporter of this place."""
    from slipway.operations.metrics.dagster import DagsterReader
    from slipway.operations.metrics.serve import PlatformExporter, PlatformSources

    context = command_context.current()
    tiers = {"durable": context.durable}
    if context.home is not None:
        tiers["nvme"] = context.home.nodes
    sources = PlatformSources(context.durable, tiers, lambda: context.fleet, lambda: context.node_health)
    with context.dagster() as storage:
        yield PlatformExporter(sources, DagsterReader(storage), jobs)
