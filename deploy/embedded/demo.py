"""The demo: launches the sweep through Dagster and lets the sensors do all the rest.

It only watches. What is made already is not made again, so that a second run finds all up to date, and a
changed recipe remakes what it changes.
"""

import time
from urllib.parse import urlparse

from rich.console import Console

from slipway.assets import keys
from slipway.assets.serving import served_models
from slipway.deploy.embedded import CannotStart, answers, instance, jobs, pipeline_state, progress, report, signals
from slipway.recipes.load import Recipes
from slipway.resources.home import Home

POLL_SECONDS = 1.0
STALL_SECONDS = 600.0
"""Without any news for this long, and with nothing at work, the demo gives up: something is broken."""


def run(recipes: Recipes, home: Home, port: int | None, keep: bool = False) -> int:
    """Make everything that is not made yet, and have it answer; returns the exit code. `keep`: it answers on.

    Raises CannotStart and ValueError with one clear message each. On Ctrl-C or SIGTERM every job is stopped
    gracefully, with a checkpoint of the step it has reached; the next run goes on from there.
    """
    console = Console(highlight=False)
    reader = pipeline_state.MadeReader(recipes, home)
    chains = reader.read()
    if all(chain.complete for chain in chains):
        console.print("Everything is up to date; nothing to do.")
        report.show(console, chains, home)
        return 0
    begun = time.monotonic()
    signals.on_sigterm()
    try:
        with instance.running(home, port) as running:
            if running.second_to is not None:
                raise CannotStart(f"SLIPWAY_HOME {home.root}: {running.second_to} decides for it; stop that one first")
            console.print(f"Dagster is running at {running.url} (home: {home.root})", soft_wrap=True)
            if running.mlflow:
                console.print(f"MLflow's pages are at {running.mlflow}/#/experiments in a moment", soft_wrap=True)
            launched = _launch(running, [chain for chain in chains if chain.sweep is None or not chain.sweep.closed])
            failure = _watch(console, running, reader, launched, begun)
    finally:
        jobs.stop_all(home)
    if failure:
        console.print(f"The demo did not end well: {failure}", soft_wrap=True, markup=False)
        console.print(f"logs: {home.dagster}/*.log and {home.jobs}/*/logs/", soft_wrap=True)
        return 1
    chains = reader.read()
    report.show(console, chains, home)
    if problem := answers.show(console, served_models(list(recipes.trainings.values())), chains, home, keep):
        console.print(f"The demo did not end well: {problem}", soft_wrap=True, markup=False)
        return 1
    console.print(f"made in {time.monotonic() - begun:.0f} s")
    return 0


def _launch(running: instance.Running, chains: list[pipeline_state.Chain]) -> list[str]:
    """Ask the webserver for a run of each sweep, as a click in the UI would; returns the runs' ids."""
    from dagster_graphql import DagsterGraphQLClient

    client = DagsterGraphQLClient("127.0.0.1", port_number=urlparse(running.url).port)
    return [client.submit_job_execution(f"{keys.lane(chain.recipe)}_sweep") for chain in chains]


def _watch(
    console: Console, running: instance.Running, reader: pipeline_state.MadeReader, launched: list[str], begun: float
) -> str | None:
    """Print what is new until all is made; returns why that will not be."""
    printed: set[str] = set()
    silence = progress.silence_of(running)
    while True:
        running.check()
        chains = reader.read()
        for line in (line for chain in chains for line in report.lines(chain)):
            if line not in printed:
                printed.add(line)
                silence.broken()
                console.print(f"[dim]{time.monotonic() - begun:5.0f} s[/dim]  {line}", soft_wrap=True)
        if all(chain.complete for chain in chains):
            return None
        if failures := [chain.failure for chain in chains if chain.failure]:
            return "; ".join(failures)
        if any(chain.sweep is None for chain in chains) and (broken := running.failure_of(launched)):
            return broken
        if silence.seconds() > STALL_SECONDS:
            return f"nothing has happened for {STALL_SECONDS:.0f} s, no job runs, and no run of Dagster does anything"
        time.sleep(POLL_SECONDS)
