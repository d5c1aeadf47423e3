"""The demo with Slipway's own recipes in a fresh home: where its seconds and its processor time go.

Seconds are read from the durable records afterwards: steps from Dagster's event log, trials and trainings from
their ledgers (from the claim to the last rank's word). The steps that only wait for those (sweep, training) do not
count as work, so that the control plane's overhead is the share of the wall time in which nothing was made.

Processor time of the whole tree is `RUSAGE_CHILDREN` once every process has been reaped, orphans included (this
process is a subreaper). Its parts are sampled from /proc twice a second by the environment of each process: what
one uses in its last half second is missing there, and counted in the whole.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
from dagster import DagsterEventType

from slipway.resources.home import Home
from slipway.resources.launchers.environment import JOB_VARIABLE
from slipway.resources.trainings.store import Trainings
from slipway.trainer.base import processes

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_SECONDS = 0.5
AIM = 0.35
"""Of the wall time, the most that may pass without anything being made."""
PART_OF = {
    **dict.fromkeys(("documents", "tokenizer", "snapshot", "staged_shards"), "data"),
    "evaluation": "evaluation",
    **dict.fromkeys(("candidate", "champion"), "promotion"),
}
"""The part of the demo that a step makes, by the noun of its asset."""
PARTS = ("data", "sweep", "training", "evaluation", "promotion")

Interval = tuple[float, float]
"""Begin and end, in seconds since the epoch."""


@dataclass
class Usage:
    """Processor time by part, sampled while the demo runs."""

    ticks: dict[tuple[int, bytes], tuple[str, int]] = field(default_factory=dict)
    """(part, clock ticks used) of each process, by pid and start time."""

    def sample(self) -> None:
        for pid in processes.descendants(os.getpid()):
            try:
                stat = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                part = _part_of_process(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            # Fields 14, 15 and 22 of proc(5), counted from the third.
            self.ticks[pid, stat[19]] = (part, int(stat[11]) + int(stat[12]))

    def seconds(self) -> dict[str, float]:
        sums: dict[str, float] = {}
        for part, ticks in self.ticks.values():
            sums[part] = sums.get(part, 0.0) + ticks / os.sysconf("SC_CLK_TCK")
        return sums


def main() -> int:
    processes.adopt_orphans()
    print(f"load average before: {os.getloadavg()[0]:.1f}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="slipway-demo-") as folder:
        home, usage = Home(Path(folder)), Usage()
        begun = time.time()
        if code := _run(home, usage):
            return code
        demo_interval = (begun, time.time())
        _reap()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        parts = intervals(home)
    _print("wall time", "s", _length([demo_interval]))
    _print("start-up, to the first step", "s", min(start for part in parts.values() for start, _ in part) - begun)
    for part in PARTS:
        _print(f"{part}", "s", _length(parts[part]))
    _print("processor time", "CPU-s", used.ru_utime + used.ru_stime)
    for part, seconds in sorted(usage.seconds().items()):
        _print(f"processor time, {part}", "CPU-s", seconds)
    overhead = 1 - _length(interval for part in parts.values() for interval in part) / _length([demo_interval])
    _print("control-plane overhead", "share of the wall time", overhead, AIM)
    return 0


def intervals(home: Home) -> dict[str, list[Interval]]:
    """When each part of the demo was at work."""
    parts: dict[str, list[Interval]] = {part: [] for part in PARTS}
    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        for run in instance.get_runs():
            for noun, interval in _steps(instance, run.run_id):
                if noun in PART_OF:
                    parts[PART_OF[noun]].append(interval)
    for trials in home.durable.glob("sweeps/*/trials"):
        parts["sweep"] += _incarnations(Trainings(trials))
    parts["training"] += _incarnations(Trainings(home.durable / "trainings"))
    return parts


def _steps(instance: dg.DagsterInstance, run: str) -> Iterable[tuple[str, Interval]]:
    """(noun, interval) of each step of a run that has ended."""
    begun: dict[str, float] = {}
    kinds = {DagsterEventType.STEP_START, DagsterEventType.STEP_SUCCESS, DagsterEventType.STEP_FAILURE}
    for entry in instance.all_logs(run, of_type=kinds):
        step = entry.step_key or ""
        if entry.dagster_event and entry.dagster_event.event_type is DagsterEventType.STEP_START:
            begun[step] = entry.timestamp
        elif step in begun:
            yield step.rpartition("__")[2], (begun[step], entry.timestamp)


def _incarnations(known: Trainings) -> list[Interval]:
    """From the claim to the last event of each incarnation."""
    spans: list[Interval] = []
    for id in known.ids():
        store = known.store(id)
        times: dict[int, list[float]] = {}
        for event in store.events() if store.newest_claim() else []:
            times.setdefault(event["incarnation"], []).append(event["t"])
        spans += [(min(moments), max(moments)) for moments in times.values()]
    return spans


def _length(parts: Iterable[Interval]) -> float:
    """Seconds that the union of the intervals covers."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(parts):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _run(home: Home, usage: Usage) -> int:
    """The demo's exit code; it prints to standard error."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SLIPWAY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "slipway.cli", "demo"],
        cwd=ROOT,
        env={**environ, "SLIPWAY_HOME": str(home.root), "PYTHONPATH": str(ROOT)},
        stdout=sys.stderr,
    )
    while process.poll() is None:
        usage.sample()
        time.sleep(SAMPLE_SECONDS)
    return process.returncode


def _part_of_process(pid: int) -> str:
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    mark = f"{JOB_VARIABLE}=".encode()
    job = next((entry.removeprefix(mark).decode() for entry in environ if entry.startswith(mark)), "")
    if job:
        # A trial is called <sweep>.<n>, a training's name has no dot.
        return "sweep" if "." in job else "training"
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    return "evaluation" if b"slipway.trainer.evaluate" in command else "Dagster, its steps, and the demo itself"


def _reap() -> None:
    """Wait for every orphan that has been left to this process, so that its time is counted."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


def _print(metric: str, unit: str, value: float, aim: float | None = None) -> None:
    line = {"benchmark": "demo", "metric": metric, "unit": unit, "better": "lower", "ours": round(value, 3)}
    print(json.dumps({**line, "peers": {}, "aim": aim}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
