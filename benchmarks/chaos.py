"""Steps that a training keeps when something breaks all the time, and how many causes the platform names rightly.

``python -m benchmarks.chaos [--minutes 15] [--every 60] [--seed 0]``: an embedded instance of two nodes trains, first
undisturbed for a while, then with faults that a seed draws from the table of `slipway chaos`. The share is the steps
that are committed at the end over those that the undisturbed pace would have given in that time. It prints a line on
standard error for each fault and the incident that was recorded for it.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from pathlib import Path

from operations.chaos import course, schedule
from operations.chaos.faults import FAULTS, JobTarget
from operations.chaos.report import ChaosReport, judged
from resources import embedded
from resources.launchers.protocol import JobState
from resources.trainings.job import job_name
from resources.trainings.store import TrainingStore
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import kill, wait_until
from trainer.base import processes
from trainer.record import incidents

MARK = "SLIPWAY_CHAOS"
STEPS = 1_000_000
UNDISTURBED_SECONDS, SETTLE_SECONDS = 60.0, 90.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only these")
    options = parser.parse_args()
    planned = schedule.drawn(options.fault or list(FAULTS), options.seed, 60 * options.minutes, options.every)
    mark = {MARK: uuid.uuid4().hex}
    os.environ |= mark
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        instance = Instance(Path(folder), small_recipes.write(Path(folder), 20), mark)
        try:
            _measure(instance, planned, 60 * options.minutes)
        finally:
            instance.dispose()
            kill(set(processes.carrying(mark)) - {os.getpid()})


def _measure(instance: Instance, planned: list[schedule.PlannedFault], seconds: float) -> None:
    instance.start()
    instance.make_snapshot()
    training = instance.propose(small_recipes.PAIR, "chaos", steps=STEPS)
    instance.start_as_a_sensor_does(training)
    wait_until(lambda: _step(training) > 0, "the first step is done")
    pace = _pace(training, UNDISTURBED_SECONDS)
    print(f"undisturbed: {pace:.2f} steps/s", file=sys.stderr)
    begun, before = time.monotonic(), _committed(training)
    record = instance.home.durable / "chaos" / "record.jsonl"
    for done in course.bring_about(planned, lambda: _targets(instance, training), record):
        print(f"{time.monotonic() - begun:.0f} s, step {done.step}: {done.what}", file=sys.stderr, flush=True)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    share = (_committed(training) - before) / (pace * (time.monotonic() - begun))
    report = _settled(training, course.read(record))
    for each in report.results:
        found = f"{each.incident.kind}: {each.incident.reason}" if each.incident else "no incident"
        print(f"{'right' if each.right else 'WRONG'}: {each.injection.fault}: {found}", file=sys.stderr)
    for incident in report.unexplained:
        print(f"without a fault: {incident.kind}: {incident.reason}", file=sys.stderr)
    _print("steps kept under chaos, of those of the undisturbed pace", "share", share, 0.95)
    _print("causes that are right", "share", report.share_right, 1.0)
    _print("faults", "count", len(report.results), None)


def _targets(instance: Instance, training: TrainingStore) -> list[JobTarget]:
    facts = training.read()
    job = embedded.launcher(instance.home).poll(job_name(facts.id, facts.incarnation))
    if not facts.running or not facts.begun or job.state is not JobState.RUNNING:
        return []
    return [JobTarget(facts, instance.home.nodes, instance.home.durable)]


def _pace(training: TrainingStore, seconds: float) -> float:
    """Steps a second over so many seconds."""
    begun, first = time.monotonic(), _step(training)
    time.sleep(seconds)
    return (_step(training) - first) / (time.monotonic() - begun)


def _step(training: TrainingStore) -> int:
    return max((beat.step for beat in training.read().beats), default=0)


def _committed(training: TrainingStore) -> int:
    return max((commit.step for commit in training.commits()), default=0)


def _settled(training: TrainingStore, injections: list[course.Injection]) -> ChaosReport:
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        found = [incidents.read(training.folder, id) for id in incidents.names(training.folder)]
        report = judged(injections, {training.id: found})
        if all(each.incident for each in report.results) or time.monotonic() > deadline:
            return report
        time.sleep(1.0)


def _print(metric: str, unit: str, ours: float, aim: float | None) -> None:
    line = {"benchmark": "chaos", "metric": metric, "unit": unit, "better": "higher", "ours": ours, "peers": {}}
    print(json.dumps({**line, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
