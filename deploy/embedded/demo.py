"""The demo: launches the sweeps through Dagster, and then only watches, since the sensors start the other work.

It makes only what is missing. So a second run finds everything up to date, and after a change of a recipe, a run makes
only what the change affects.
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
"""If nothing new happens and no job works for this long, something is broken and the demo ends."""


def run(recipes: Recipes, home: Home, port: int | None, keep: bool = False) -> int:
    """Make everything that is missing, and let the champions answer. With `keep`, they remain served.

    Returns the exit code. Raises CannotStart and ValueError with one clear message each. On Ctrl-C or SIGTERM, every
    job is stopped gracefully with a checkpoint of its last step, from which the next run continues.
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
    problem = answers.show(console, served_models(list(recipes.trainings.values())), chains, home, keep)
    if problem:
        console.print(f"The demo did not end well: {problem}", soft_wrap=True, markup=False)
        return 1
    console.print(f"made in {time.monotonic() - begun:.0f} s")
    return 0


def _launch(running: instance.Running, chains: list[pipeline_state.Chain]) -> list[str]:
    """Ask the webserver for a run of each sweep, as a click in the UI does. Returns the ids of the runs."""
    from dagster_graphql import DagsterGraphQLClient

    client = DagsterGraphQLClient("127.0.0.1", port_number=urlparse(running.url).port)
    return [client.submit_job_execution(f"{keys.lane(chain.recipe)}_sweep") for chain in chains]


def _watch(
    console: Console, running: instance.Running, reader: pipeline_state.MadeReader, launched: list[str], begun: float
) -> str | None:
    """Print news until everything is made. Returns None, or why the work cannot be completed."""
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
        failures = [chain.failure for chain in chains if chain.failure]
        if failures:
            return "; ".join(failures)
        broken = running.failure_of(launched) if any(chain.sweep is None for chain in chains) else None
        if broken:
            return broken
        if silence.seconds() > STALL_SECONDS:
            return f"nothing has happened for {STALL_SECONDS:.0f} s, no job runs, and no run of Dagster does anything"
        time.sleep(POLL_SECONDS)
