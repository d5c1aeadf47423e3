"""Dagster alone: its own webserver over a code location that knows nothing of Slipway.

`bare` serves one asset and no event, which tells what of a page's seconds is Dagster's own. `training` serves the
trainings of a home as an ordinary person has Dagster run them (`benchmarks/peers/dagster_code.py`).
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import dagster as dg

from benchmarks.peers.logged import Logged
from benchmarks.peers.peer import Peer, PeerPage, answers
from tests.conftest import until
from tests.embedded.slipway import free_port

ASSET = "only_asset"
BARE = f"""import dagster as dg


@dg.asset
def {ASSET}() -> None:
    pass


defs = dg.Definitions(assets=[{ASSET}])
"""
CODE = Path(__file__).with_name("dagster_code.py")
START_SECONDS = 120.0
RUN_SECONDS = 300.0
SETTINGS = "telemetry: {enabled: false}\n"
NOTHING: Mapping[str, str] = {}


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[str]:
    """The address of a Dagster with one asset and an empty instance in `folder`."""
    folder.mkdir(parents=True)
    (folder / "bare.py").write_text(BARE)
    with served(folder, folder / "bare.py") as url:
        yield url


@contextlib.contextmanager
def training(folder: Path, logged: Logged) -> Iterator[Peer]:
    """A Dagster in which the dataset, the search and the champion are made, and the training runs after a retry."""
    folder.mkdir(parents=True)
    hold = folder / "hold"
    hold.touch()
    more = {"LOGGED": str(logged.write(folder / "logged.json")), "HOLD": str(hold), "DAGSTER_HOME": str(folder)}
    (folder / "dagster.yaml").write_text(SETTINGS)
    execute = [sys.executable, "-m", "dagster", "job", "execute", "-f", str(CODE), "-j"]
    environ = {**os.environ, **more}
    with (folder / "runs.log").open("wb") as log:
        subprocess.run([*execute, "build"], env=environ, stdout=log, stderr=log, check=True, timeout=RUN_SECONDS)
        run = subprocess.Popen([*execute, "train"], env=environ, stdout=log, stderr=log)
    try:
        with dg.DagsterInstance.from_config(str(folder)) as instance:
            last = f"step {int(logged.running.steps[-1]['step'])} of"
            until(
                lambda: last in _logged_text(instance), "the training of Dagster alone is at its last step", RUN_SECONDS
            )
            [there] = instance.get_runs(dg.RunsFilter(job_name="train"))
        with served(folder, CODE, more) as url:
            yield Peer("Dagster alone", _pages(url, there.run_id), {"best": str(logged.best_trial)})
    finally:
        hold.unlink()
        run.wait(timeout=RUN_SECONDS)


def _logged_text(instance: dg.DagsterInstance) -> str:
    """What the run of the training has logged so far."""
    runs = instance.get_runs(dg.RunsFilter(job_name="train"))
    return "\n".join(event.user_message for run in runs for event in instance.all_logs(run.run_id))


def _pages(url: str, run: str) -> list[PeerPage]:
    of = {name: frozenset({name}) for name in ("running", "champion", "sweep", "dataset")}
    anything = frozenset({*of, "all", "night"})
    pages = [
        PeerPage("the first page", f"{url}/", 0, anything, greeting="text=Skip"),
        PeerPage("the runs", f"{url}/runs", 1, anything),
        PeerPage("the catalog", f"{url}/assets", 1, anything),
        PeerPage("the run", f"{url}/runs/{run}", 2, of["running"]),
        PeerPage("the table of trials", f"{url}/assets/sweep", 3, of["sweep"], ("text=[Show Markdown]",)),
        PeerPage("what failed in the run", f"{url}/runs/{run}", 3, of["running"], typed="failed"),
        PeerPage("what the run said first", f"{url}/runs/{run}", 3, of["running"], typed="configuration"),
        PeerPage("the lineage", f"{url}/asset-groups", 1, anything),
    ]
    for subject, about in of.items():
        name = "training" if subject == "running" else subject
        pages += [
            PeerPage(f"the asset {name}", f"{url}/assets/{name}", 2, about),
            PeerPage(f"the events of {name}", f"{url}/assets/{name}?view=events", 3, about),
            PeerPage(f"the plots of {name}", f"{url}/assets/{name}", 3, about, ("text=Plots >> nth=-1",)),
            PeerPage(f"the checks of {name}", f"{url}/assets/{name}?view=checks", 3, about),
        ]
    return pages


@contextlib.contextmanager
def served(home: Path, code: Path, more: Mapping[str, str] = NOTHING) -> Iterator[str]:
    """The address of Dagster's webserver over the instance in `home` and a file of definitions."""
    (home / "dagster.yaml").write_text(SETTINGS)
    port, environ = free_port(), {**os.environ, **more, "DAGSTER_HOME": str(home)}
    url, command = f"http://127.0.0.1:{port}", ["dagster_webserver", "-f", str(code), "-p", str(port)]
    with (home / "webserver.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", *command], env=environ, stdout=log, stderr=log)
    try:
        until(lambda: answers(f"{url}/server_info"), "Dagster alone answers", START_SECONDS)
        yield url
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
