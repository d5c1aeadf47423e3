"""Ray alone: a training under Ray Train on a cluster of one node, and Ray's dashboard over it.

Ray comes from an environment of its own, by the path of its interpreter, with `ray[default,train]`.
"""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers.logged import Logged
from benchmarks.peers.peer import Peer, PeerPage
from slipway.trainer.base import proxy_bypass
from tests.conftest import until
from tests.embedded.slipway import free_port

JOB = Path(__file__).with_name("ray_job.py")
START_SECONDS = 240.0
"""For a start, and between two lines of a job that goes on: with much else on the machine, a step takes seconds."""


@contextlib.contextmanager
def served(folder: Path, logged: Logged, python: Path) -> Iterator[Peer]:
    """A cluster on which the training runs after its own retry, in `folder`."""
    folder.mkdir(parents=True)
    hold = folder / "hold"
    hold.touch()
    environ = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    port, program = free_port(), str(python.parent / "ray")
    url = f"http://127.0.0.1:{port}"
    head = ["start", "--head", "--block", f"--port={free_port()}", f"--dashboard-port={port}", "--num-cpus=2"]
    limits = [f"--temp-dir={folder / 'r'}", f"--object-store-memory={10**8}"]
    with (folder / "ray.log").open("wb") as log:
        cluster = subprocess.Popen([program, *head, *limits], env=environ, stdout=log, stderr=log)
        try:
            until(lambda: _json(f"{url}/api/version") is not None, "Ray alone answers", START_SECONDS)
            job = ["job", "submit", "--no-wait", f"--address={url}", "--"]
            entry = [str(python), str(JOB), str(logged.write(folder / "logged.json")), str(hold)]
            until(lambda: _submits([program, *job, *entry], environ, log), "Ray takes the job", START_SECONDS)
            _follow(url, f"step {int(logged.running.steps[-1]['step'])} of")
            yield Peer("Ray's dashboard", _pages(url, _job(url)), {"best": str(logged.best_trial)})
        finally:
            hold.unlink()
            cluster.send_signal(signal.SIGTERM)
            cluster.wait(timeout=START_SECONDS)


def _submits(command: list[str], environ: dict[str, str], log: Any) -> bool:
    return subprocess.run(command, env=environ, stdout=log, stderr=log).returncode == 0


def _job(url: str) -> str:
    return next((str(job["submission_id"]) for job in _json(f"{url}/api/jobs/") or () if job["submission_id"]), "")


def _log(url: str) -> str:
    """What the job has printed so far."""
    answer = _json(f"{url}/api/jobs/{_job(url)}/logs") if _job(url) else None
    return str(answer.get("logs", "")) if isinstance(answer, dict) else ""


def _follow(url: str, last: str) -> None:
    """Wait until the job has printed its last step, for as long as it goes on. Raises AssertionError."""
    output = ""
    while last not in output:
        before = output
        until(lambda before=before: _log(url) != before, f"Ray alone goes on towards {last}", START_SECONDS)  # type: ignore[misc]
        output = _log(url)


def _json(url: str) -> Any:
    """What the address answers; None where it does not."""
    try:
        with proxy_bypass.opener(url).open(url, timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def _pages(url: str, job: str) -> list[PeerPage]:
    """The dashboard's own pages; Ray Train's figures are in Grafana alone, which is not started here."""
    every = frozenset({"running", "champion", "sweep", "dataset", "all", "night"})
    return [
        PeerPage("the first page", f"{url}/#/overview", 0, every),
        PeerPage("the jobs", f"{url}/#/jobs", 1, every),
        PeerPage("the job, with its log", f"{url}/#/jobs/{job}", 2, every),
        PeerPage("the cluster", f"{url}/#/cluster", 1, every),
        PeerPage("the actors", f"{url}/#/actors", 1, every),
        PeerPage("the logs", f"{url}/#/logs", 1, every),
        PeerPage("serve", f"{url}/#/serve", 1, every),
    ]
