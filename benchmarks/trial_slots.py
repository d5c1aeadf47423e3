"""What a sweep costs beside its trials: the gap between two trials in a slot, and a poll of a controller.

``python -m benchmarks.trial_slots [--trials N] [--running N] [--steps N] [--rounds N] [--ray PYTHON]``
- gap: a sweep of N trials, one after the other, as real processes on the embedded fleet: seconds from the end that one
  trial records to the first step that the next one has done; on warm slots, and with a new process for each trial. The
  stages of a gap are measured: the controller decides, the job is submitted, the process starts and imports, and the
  ranks go on to their first step. With the interpreter of an environment that has Ray Tune, beside Ray's gap between
  trials that do nothing.
- poll: a controller over N running trials, each with a ledger of so many steps: CPU-milliseconds of a poll with nothing
  new (the best of some) and with one report, how often it asks the launcher, and how often it lists the fleet. Launcher
  and fleet are not real there: they count, and say that all runs.
"""

import argparse
import dataclasses
import itertools
import json
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg

from benchmarks.sensors import ReadyFleet, unsynced
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps as lane
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.controller import Controller
from slipway.assets.sweeps.events import Proposed, Started
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trials import trials_of
from slipway.resources.launchers.protocol import Job, JobState, Status
from slipway.resources.trainings.caching import CachingLauncher
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.job import Paths
from slipway.resources.trainings.store import WorkQueue
from slipway.resources.trainings.watch import LOOK_SECONDS
from slipway.trainer.record import fence, heartbeat, ledger
from slipway.trainer.record.ledger import Ledger
from tests.assets.datasets.corpora import make_corpus
from tests.sensors.platform import SEARCH, Platform, write_recipes

BY = "benchmark"
TRIAL = {"run.steps": 20, "validation.every": 10, "validation.sequences": 4, "checkpoint.every": 20}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.trial_slots", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--trials", type=int, default=6, help="trials of the sweep; 0 leaves the gap out")
    parser.add_argument("--running", type=int, default=100, help="running trials; 0 leaves the poll out")
    parser.add_argument("--steps", type=int, default=2000, help="steps in the ledger of each of them")
    parser.add_argument("--rounds", type=int, default=20, help="polls with nothing new")
    parser.add_argument("--ray", help="the interpreter of an environment with Ray Tune")
    options = parser.parse_args()
    for count, measure in ((options.trials, gap), (options.running, poll)):
        if count:
            with tempfile.TemporaryDirectory(prefix="slipway-slots-") as folder, _platform(Path(folder)) as platform:
                measure(platform, options)


class _platform:  # noqa: N801 - a context manager, used as a function
    """A home with a snapshot, in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> Platform:
        (self._root / "dagster").mkdir()
        self._instance = dg.instance_for_test(temp_dir=str(self._root / "dagster"))
        make_corpus(self._root / "corpus")
        write_recipes(self._root / "recipes")
        platform = Platform(self._root, self._instance.__enter__())
        dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
        source = lane.make_documents(dataset, durable).inputs["source"]["digest"]
        lane.make_tokenizer(dataset, durable)
        pointer.point(durable, dataset.name, lane.make_snapshot(dataset, durable).result["sha256"], source)
        return platform

    def __exit__(self, *error: Any) -> None:
        self._instance.__exit__(*error)


def gap(platform: Platform, options: argparse.Namespace) -> None:
    """Print the seconds between the trials of a sweep that has one slot."""
    peers = _of_ray(options.ray, options.trials) if options.ray else {}
    for seed, reuses, aim, peer in ((1, True, 0.3, "ray, reuse_actors"), (2, False, 3.0, "ray, function")):
        search = {"trials": options.trials, "parallel": 1, "scheduler": {"kind": "none"}, "trial": TRIAL, "seed": seed}
        store, subject = searched(platform, **search)
        control = platform.control
        if not reuses:
            control.launcher = ColdLauncher(control.launcher)
        Controller(store, subject, control, platform.compute.poll_seconds).run(lambda sweep: None)
        gap_stages = stages(store)
        gaps = [sum(seconds.values()) for seconds in gap_stages]
        of = "on a warm slot" if reuses else "a process a trial"
        median = {name: round(statistics.median(seconds[name] for seconds in gap_stages), 2) for name in gap_stages[0]}
        beside = {name: round(value, 2) for name, value in peers.items() if name == peer}
        more = {"longest": round(max(gaps), 2), "stages": median, "peers": beside}
        show(f"gap, {of}", "s", statistics.median(gaps), aim, **more)


def _of_ray(python: str, trials: int) -> dict[str, float]:
    script = Path(__file__).parent / "peers" / "trial_gap.py"
    ran = subprocess.run([python, str(script), str(trials)], check=True, stdout=subprocess.PIPE, text=True)
    gaps: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return gaps


def stages(store: SweepStore) -> list[dict[str, float]]:
    """Of each gap between two trials, how many seconds each stage took, in their order."""
    trials = sorted(trials_of(store).stores(), key=lambda trial: int(trial.id.rpartition(".")[2]))
    decided, started = (
        {event.trial: event.at for event in store.read() if isinstance(event, kind)} for kind in (Proposed, Started)
    )
    gap_stages = []
    for number, (before, trial) in enumerate(itertools.pairwise(trials), start=1):
        times = {
            "ended": moment(before.folder, "ended"),
            "decided": decided[number],
            "submitted": started[number],
            "imported": moment(trial.folder, "phase"),
            "stepped": moment(trial.folder, "stepped"),
        }
        gap_stages.append({name: times[name] - times[last] for last, name in itertools.pairwise(times)})
    return gap_stages


class ColdLauncher(CachingLauncher):
    """A launcher that starts each job in new processes."""

    def poll(self, name: str) -> Status:
        return self.launcher.poll(name)

    def submit(self, job: Job) -> None:
        self.launcher.submit(dataclasses.replace(job, warm_start=False))


def moment(folder: Path, name: str) -> float:
    """When the first event of a name was written."""
    return next(float(event["t"]) for event in ledger.read(folder) if event["event"] == name)


class CountingLauncher:
    """A launcher whose jobs all run, and that starts nothing."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()

    def poll(self, name: str) -> Status:
        self.calls["poll"] += 1
        return Status(JobState.RUNNING, nodes=("node-0",), submitted_at=time.time(), started_at=time.time())

    def submit(self, job: object) -> None: ...

    def cancel(self, name: str, grace_seconds: float) -> None: ...

    def take_back(self, name: str, nodes: object) -> tuple[str, ...]:
        return ()

    def release(self, name: str) -> bool:
        return False

    def rest(self) -> None: ...

    def logs(self, name: str, tail_bytes: int = 0) -> dict[str, str]:
        return {}


class CountingFleet(ReadyFleet):
    """A fleet whose nodes are all ready; where a scheduler has the queue."""

    scheduled = True
    listed = 0

    def nodes(self) -> Any:
        self.listed += 1
        return super().nodes()


def poll(platform: Platform, options: argparse.Namespace) -> None:
    """Print what a poll over running trials costs."""
    count = options.running
    store, subject = searched(platform, trials=count, parallel=count, scheduler={"kind": "none"}, trial=TRIAL)
    with unsynced():
        for number in range(count):
            running(store, subject, number, options.steps)
    launcher, fleet = CountingLauncher(), CountingFleet(count)
    control = TrainingControl(launcher, fleet, Paths(platform.home.durable, platform.home.nvme))
    controller = Controller(store, subject, control, 0.5)
    first = cpu(lambda: controller.poll(state(store)))
    time.sleep(0.1)
    begun = launcher.calls["poll"], fleet.listed
    quiet = min(cpu(lambda: controller.poll(state(store))) for _ in range(options.rounds))
    polls, listings = launcher.calls["poll"] - begun[0], fleet.listed - begun[1]
    time.sleep(LOOK_SECONDS)
    looked = cpu(lambda: controller.poll(state(store)))
    trial = trials_of(store).store(f"{store.sweep}.0")
    ledger.note(trial.folder, fence.Token(1), "rank-0", "validated", step=10, loss=1.0)
    news = cpu(lambda: controller.poll(state(store)))
    of = f"of {count} running trials"
    show(f"first poll {of}", "CPU-ms", first, None, steps=options.steps)
    show(
        f"poll {of}, nothing new",
        "CPU-ms",
        quiet,
        5.0,
        polls=polls / options.rounds,
        listings=listings / options.rounds,
    )
    show(f"poll {of}, every one looked at, each {LOOK_SECONDS:.0f} s", "CPU-ms", looked, None)
    show(f"poll {of}, one report", "CPU-ms", news, None)


def searched(platform: Platform, **changed: Any) -> tuple[SweepStore, SearchSubject]:
    more = platform.with_sweep(**changed)
    subject = current_subject(more.recipes.sweeps[SEARCH], more.recipe, more.tiers, more.tracking)
    return open_sweep(subject, more.tiers), subject


def state(store: SweepStore) -> SweepState:
    sweep_state = store.state()
    assert sweep_state is not None
    return sweep_state


def running(store: SweepStore, subject: SearchSubject, number: int, steps: int) -> None:
    """A trial that runs, as its records and the log have it."""
    parameters, root = {"optimizer.learning_rate": 0.01}, trials_of(store)
    recipe = subject.trial(parameters)
    policy = subject.trial_terms(recipe, store.sweep, number, parameters)
    trial = root.propose(subject.trial_specification(recipe), policy, id=f"{store.sweep}.{number}", by=BY)
    root.start(trial, BY, "a benchmark", (WorkQueue.TRACKING,))
    node = f"node-{number}"
    assert trial.claim(1, (node,), "first start", BY)
    trial.mark_submitted(1)
    heartbeat.Heartbeat(trial.folder, fence.Token(1), 0).beat("training", 1)
    written = Ledger(trial.folder, fence.Token(1), "rank-0")
    for step in range(1, steps + 1):
        written.write("step", step=step, loss=1.0, seconds=0.1)
    written.close()
    store.append(Proposed(trial=number, parameters=parameters, until=20))
    store.append(Started(trial=number, job=trial.id, nodes=(node,)))


def cpu(act: Callable[[], object]) -> float:
    """CPU-milliseconds of a call."""
    begun = time.process_time()
    act()
    return (time.process_time() - begun) * 1000


def show(metric: str, unit: str, value: float, aim: float | None, **more: Any) -> None:
    line = {"benchmark": "trial_slots", "metric": metric, "unit": unit, "better": "lower", "ours": round(value, 2)}
    print(json.dumps({**line, "peers": {}, "aim": aim, **more}), flush=True)


if __name__ == "__main__":
    main()
