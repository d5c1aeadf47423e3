"""Steps that a training keeps when something breaks all the time, and how many causes the platform names rightly.

``python -m benchmarks.chaos [--minutes 15] [--every 60] [--seed 0]``: an embedded instance of two nodes trains, first
undisturbed for a while, then with faults that a seed draws from the table of `slipway chaos`. The share is the steps
that are committed at the end over those that the undisturbed pace would have given in that time. It prints a line on
standard error for each fault and the incident that was recorded for it.

``--each`` does each fault once instead, the next one when the training goes on again after the last one.
``--through N`` kills the node of a training of one node N times, and waits through the real daemon and its sensors:
until the incident is shown, and until the first step of the next incarnation. ``--peer`` does the faults of the seed to
a job under plain torchrun instead (`benchmarks.peers.chaos`).
"""

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

from benchmarks.peers.chaos import Peer
from slipway.assets import keys
from slipway.operations.chaos import course, schedule
from slipway.operations.chaos.faults import FAULTS, usual
from slipway.operations.chaos.report import ChaosReport, judged
from slipway.operations.chaos.target import JobTarget
from slipway.operations.simulation.play import play
from slipway.operations.simulation.settings import SILENT, Scenario
from slipway.resources import embedded
from slipway.resources.fleet import embedded as embedded_fleet
from slipway.resources.launchers.protocol import JobState
from slipway.resources.trainings import accounts
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import processes
from slipway.trainer.record import causes, incidents, ledger
from slipway.trainer.record.accounting import buckets
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import kill, wait_until

MARK = "SLIPWAY_CHAOS"
FOUND_LATE = (causes.HUNG, causes.NETWORK, causes.CORRUPTION)
"""Causes that no process dies of."""
KEPT_STEPS = "steps kept under chaos, of those of the undisturbed pace"
MOMENT_TITLES = {"recorded": "its record", "shown": "its incident", "stepped": "the next step"}
STEPS = 1_000_000
EVERY = 25
"""Steps between two checkpoints, in the recipe."""
IN_MEMORY = 5
"""Steps between two states in the memory of the nodes: a rank that dies costs no more of them than that."""
UNDISTURBED_SECONDS, SETTLE_SECONDS, PATIENCE = 60.0, 90.0, 600.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--every", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only these")
    parser.add_argument("--each", action="store_true", help="each fault once, one after the other")
    parser.add_argument("--through", type=int, default=0, metavar="N", help="kill a node N times, through Dagster")
    parser.add_argument("--peer", action="store_true", help="torchrun instead of ours")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its instance ends with it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it, and so would the instance
    names = options.fault or usual()
    planned = schedule.drawn(names, options.seed, 60 * options.minutes, options.every)
    mark = {MARK: uuid.uuid4().hex}
    os.environ |= mark
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        if options.peer:
            return _peer(Path(folder), planned, 60 * options.minutes)
        instance = Instance(Path(folder), _recipes(Path(folder)), mark)
        try:
            if options.through:
                _through(instance, options.through)
            elif options.each:
                _one_by_one(instance, names)
            else:
                _measure(instance, planned, 60 * options.minutes)
        finally:
            instance.dispose()
            kill(set(processes.carrying(mark)) - {os.getpid()})


def _simulated(training: TrainingStore, report: ChaosReport, pace: float) -> float:
    """What the simulation of `slipway simulate` gives for the faults that ended a generation, with what they cost."""
    steps = sorted(float(event["t"]) for event in training.events() if event["event"] == "stepped")
    blocked = [float(event["blocked_seconds"]) for event in training.events() if event["event"] == "committed"]
    ended = [results for results in report.results if results.incident and not results.incident.survived]
    delays: dict[bool, list[float]] = {True: [], False: []}
    restarts = []
    for result in ended:
        assert result.incident is not None and result.seconds is not None
        delays[result.incident.kind in FOUND_LATE].append(max(0.0, result.seconds))
        restarts += [at - result.incident.at for at in steps if at > result.incident.at][:1]
    if not restarts:
        return 1.0
    first, last = ended[0].injection.at, ended[-1].injection.at
    every = max(1.0, last - first) / max(1, len(ended) - 1)
    scenario = Scenario(
        gpus=2,
        gpus_per_node=1,
        days=30.0,
        failures_per_gpu_day=86_400.0 / every / 2,
        causes={"dead": (len(delays[False]), False), SILENT[0]: (len(delays[True]), False)},
        detect=statistics.fmean(delays[False] or [0.0]),
        hang=statistics.fmean(delays[True] or [0.0]),
        restart=statistics.fmean(restarts),
        restore=0.0,
        warm_up=0.0,
        stall=statistics.fmean(blocked or [0.0]),
        interval=EVERY / pace,
    )
    print(f"simulated: {len(ended)} faults, {scenario}", file=sys.stderr)
    return play(scenario).ettr


def _peer(folder: Path, planned: list[schedule.PlannedFault], seconds: float) -> None:
    peer = Peer(folder)
    try:
        share = peer.share(planned, seconds, UNDISTURBED_SECONDS)
        line = {"benchmark": "chaos", "metric": KEPT_STEPS, "unit": "share", "better": "higher", "ours": None}
        print(json.dumps({**line, "peers": {"torchrun": round(share, 3)}, "aim": 0.95}), flush=True)
    finally:
        peer.close()


def _recipes(folder: Path) -> Path:
    """The recipes of a small platform whose trainings allow drills."""
    written = small_recipes.write(folder, 20)
    path = written / "trainings" / f"{small_recipes.PAIR}.yaml"
    text = path.read_text().replace("recovery: {", "observation: {compare_steps: 50}\nrecovery: {drills: true, ")
    text = text.replace("storage: {", f"storage: {{memory_steps: {IN_MEMORY}, ")
    path.write_text(text)
    return written


def _measure(instance: Instance, planned: list[schedule.PlannedFault], seconds: float) -> None:
    training = _started(instance)
    pace = _pace(training, UNDISTURBED_SECONDS)
    print(f"undisturbed: {pace:.2f} steps/s", file=sys.stderr)
    begun, before = time.monotonic(), _committed(training)
    record = instance.home.durable / "chaos" / "record.jsonl"
    for done in course.bring_about(planned, lambda: _targets(instance, training), record):
        print(f"{time.monotonic() - begun:.0f} s, step {done.step}: {done.what}", file=sys.stderr, flush=True)
    time.sleep(max(0.0, begun + seconds - time.monotonic()))
    share = (_committed(training) - before) / (pace * (time.monotonic() - begun))
    report = _settled(training, course.read(record))
    for result in report.results:
        verdict = f"{result.incident.kind}: {result.incident.reason}" if result.incident else "no incident"
        print(f"{'right' if result.right else 'WRONG'}: {result.injection.fault}: {verdict}", file=sys.stderr)
    for incident in report.unexplained:
        print(f"without a fault: {incident.kind}: {incident.reason}", file=sys.stderr)
    for line in _lost(training):
        print(line, file=sys.stderr)
    _print(KEPT_STEPS, "share", share, 0.95)
    _print("the same, as simulated with these costs and this rate", "share", _simulated(training, report, pace), None)
    _print("causes that are right", "share", report.share_right, 1.0)
    _print("faults", "count", len(report.results), None)


def _lost(training: TrainingStore) -> list[str]:
    """Where the lost seconds went: by cause, with the parts of each, the dearest first."""
    lost_seconds: dict[str, dict[str, float]] = {}
    for interruption in accounts.of(training.folder).interruptions:
        parts = lost_seconds.setdefault(interruption.kind or "unknown", {})
        for name, seconds in interruption.lost.items():
            parts[name] = parts.get(name, 0.0) + seconds
    ordered = sorted(lost_seconds.items(), key=lambda pair: -sum(pair[1].values()))
    return [
        f"lost to {kind}: {sum(parts.values()):.1f} s: "
        + ", ".join(f"{buckets.TITLES[name]} {seconds:.1f}" for name, seconds in sorted(parts.items(), key=_dearest))
        for kind, parts in ordered
    ]


def _dearest(part: tuple[str, float]) -> float:
    return -part[1]


def _one_by_one(instance: Instance, names: list[str]) -> None:
    """Each of the faults once; the next one when the training has gone on."""
    training, right = _started(instance), 0
    for number, name in enumerate(names):
        wait_until(lambda: training.commits() and _targets(instance, training), "the training runs", PATIENCE)
        record = instance.home.durable / "chaos" / f"{number}.jsonl"
        begun = time.monotonic()
        planned = [schedule.PlannedFault(0.0, name, 0.5)]
        done = list(course.bring_about(planned, lambda: _targets(instance, training), record))
        if not done:
            print(f"{name}: found no target", file=sys.stderr, flush=True)
            continue
        report = _settled(training, done)
        [result] = report.results
        incident = result.incident
        before = max(done[0].step, incident.step if incident else 0)
        _until_step(training, before + 6, f"the training goes on after {name}")
        verdict = f"{incident.kind}: {incident.reason} ({result.seconds:.1f} s)" if incident else "no incident"
        more = "".join(f"; also {incident.kind}: {incident.reason}" for incident in report.unexplained)
        passed = f"goes on after {time.monotonic() - begun:.0f} s"
        print(f"{'right' if result.right else 'WRONG'}: {name}: {verdict}; {passed}{more}", file=sys.stderr, flush=True)
        right += result.right
        for node in instance.fleet.names:
            instance.fleet.restore(node)
    _print("causes that are right, each fault once", "share", right / len(names), 1.0)


def _through(instance: Instance, kills: int) -> None:
    """From a dead node to its incident in Dagster, and to the first step on another node; the medians."""
    training = _started(instance, small_recipes.ALONE)
    delays: dict[str, list[float]] = {"recorded": [], "shown": [], "stepped": []}
    for _ in range(kills):
        wait_until(lambda: _targets(instance, training), "the training runs", PATIENCE)
        facts = training.read()
        commits = len(facts.commits)
        wait_until(lambda commits=commits: len(training.commits()) > commits + 1, "a checkpoint", PATIENCE)  # type: ignore[misc]
        at, [node] = time.time(), facts.nodes
        embedded_fleet.kill(instance.home.nodes, node)
        for name, moment in _moments(instance, training, facts.incarnation).items():
            delays[name].append(moment - at)
        print(
            f"{node} was killed: { ({name: round(seconds[-1], 2) for name, seconds in delays.items()}) }",
            file=sys.stderr,
        )
        instance.fleet.restore(node)
    for name, aim in (("recorded", None), ("shown", 12.0), ("stepped", 30.0)):
        line = {"benchmark": "chaos", "metric": f"dead node to {MOMENT_TITLES[name]}, through Dagster", "unit": "s"}
        value = round(statistics.median(delays[name]), 2)
        print(json.dumps({**line, "better": "lower", "ours": value, "peers": {}, "aim": aim}), flush=True)


def _moments(instance: Instance, training: TrainingStore, incarnation: int) -> dict[str, float]:
    """When the incident of an incarnation was on record, when Dagster had it, and when the next one did a step."""
    moments: dict[str, float] = {}
    recipe = training.specification().recipe

    def complete() -> bool:
        names = incidents.names(training.folder, incarnation)
        if names:
            moments.setdefault("recorded", time.time())
        if names and "shown" not in moments:
            partition = f"{training.id}.{names[-1]}"
            if instance.materializations(keys.key(recipe, "incident"), partition):
                moments["shown"] = time.time()
        later = [event for event in training.events() if event["event"] == "stepped"]
        stepped = [event for event in later if event["incarnation"] > incarnation]
        moments.update({"stepped": float(stepped[0]["t"])} if stepped else {})
        return {"recorded", "shown", "stepped"} <= moments.keys()

    wait_until(complete, "the next incarnation steps", PATIENCE)
    return {name: moments[name] for name in MOMENT_TITLES}


def _started(instance: Instance, recipe: str = small_recipes.PAIR) -> TrainingStore:
    """A training that makes steps."""
    instance.start()
    instance.make_snapshot()
    training = instance.propose(recipe, "chaos", steps=STEPS)
    instance.start_as_a_sensor_does(training)
    wait_until(lambda: _step(training) > 0, "the first step is done")
    return training


def _until_step(training: TrainingStore, step: int, what: str) -> None:
    wait_until(lambda: _step(training) >= step, what, PATIENCE)


def _targets(instance: Instance, training: TrainingStore) -> list[JobTarget]:
    facts = training.read()
    job = embedded.launcher(instance.home).poll(job_name(facts.id, facts.incarnation))
    if not facts.running or not facts.begun or job.state is not JobState.RUNNING:
        return []
    return [JobTarget(facts, instance.home)]


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
        known = [incidents.read(training.folder, id) for id in incidents.names(training.folder)]
        steps = ledger.step_times(training.events())
        report = judged(injections, {training.id: known}, {training.id: steps})
        if report.complete or time.monotonic() > deadline:
            return report
        time.sleep(1.0)


def _print(metric: str, unit: str, value: float, aim: float | None) -> None:
    line = {"benchmark": "chaos", "metric": metric, "unit": unit, "better": "higher", "ours": value, "peers": {}}
    print(json.dumps({**line, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
