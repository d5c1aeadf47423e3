"""Sweeps: the compute that schedulers save, population-based training, and what the controller of a sweep costs.

``python -m benchmarks.sweep [saved] [population] [controller] [--seeds N] [--ray PYTHON]``: one JSON line a metric.

saved       the schedulers on the curves of `benchmarks.peers.sweep`, beside Optuna's and (with the interpreter of an
            environment that has it) Ray's own ones: share of the epochs saved, regret, makespan
population  population-based training on the toy of Jaderberg et al. 2017, section 4.1, beside a random search
controller  CPU-milliseconds a trial and a report, with fsync, beside Optuna's storages; a poll with nothing new; and
            the share of a core that 100 concurrent trials take
"""

import argparse
import heapq
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.sweep import EPOCHS, ETA, RUNGS, SearchOutcome, curve, outcome
from slipway.assets.sweeps.actions import Continue, Start, StartBranch, Stop, next_actions
from slipway.assets.sweeps.decisions import decide
from slipway.assets.sweeps.events import Budgeted, Ended, Event, Opened, Paused, Reported, Started
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.state import SweepState, fold
from slipway.assets.sweeps.store import SweepStore

PEERS = ("none", "optuna-halving", "optuna-hyperband", "optuna-median")
SCHEDULERS = ("promotion", "stopping", "hyperband", "median")
SIZES = ((64, 10), (256, 32))
NUMBERS = {f"p.{name}": {"loguniform": [1e-5, 1e-1]} for name in "abcd"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="saved, population, controller; all without any")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ray", help="the interpreter of an environment with Ray Tune")
    options = parser.parse_args()
    parts = options.parts or ["saved", "population", "controller"]
    if "saved" in parts:
        saved(options.seeds, options.ray)
    if "population" in parts:
        population(2 * options.seeds)
    if "controller" in parts:
        controller()


def saved(seeds: int, ray: str | None) -> None:
    """Print what each engine saves, and how good what it hands over is."""
    for trials, workers in SIZES:
        outcomes_by_engine: dict[str, list[SearchOutcome]] = {}
        for kind in SCHEDULERS:
            outcomes_by_engine[kind] = [run(plan(kind, seed), trials, workers, seed) for seed in range(seeds)]
        for peer, interpreter in (*((peer, sys.executable) for peer in PEERS), ("ray-halving", ray)):
            try:
                outcomes_by_engine[peer] = _of_peer(interpreter, peer, trials, workers, seeds)
            except PeerLeftOut as left_out:
                print(f"{peer} is left out ({trials} trials): {left_out}", file=sys.stderr)
        for kind in SCHEDULERS:
            of = {
                name: outcomes
                for name, outcomes in outcomes_by_engine.items()
                if name == kind or name not in SCHEDULERS
            }
            _show_saved(kind, of, f"{trials} trials, {workers} at once")


class PeerLeftOut(Exception):
    """Why a peer has no figures."""


def _of_peer(interpreter: str | None, peer: str, trials: int, workers: int, seeds: int) -> list[SearchOutcome]:
    """What a peer's own scheduler gives. Raises PeerLeftOut."""
    if interpreter is None:
        raise PeerLeftOut("no interpreter that has it is given (--ray PYTHON)")
    script = Path(__file__).parent / "peers" / "sweep.py"
    command = [interpreter, str(script), peer, str(trials), str(workers), str(seeds)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise PeerLeftOut((ran.stderr.strip().splitlines() or [f"{interpreter} ended with {ran.returncode}"])[-1])
    return [SearchOutcome(**fields) for fields in json.loads(ran.stdout.strip().splitlines()[-1])]


def _show_saved(kind: str, outcomes_by_engine: dict[str, list[SearchOutcome]], size: str) -> None:
    measures: dict[str, tuple[Callable[[list[SearchOutcome]], float], str, str]] = {
        "saved": (lambda outcomes: statistics.median(one.saved for one in outcomes), "share", "higher"),
        "saved, worst seed": (lambda outcomes: min(one.saved for one in outcomes), "share", "higher"),
        "within .005 of the best": (lambda outcomes: sum(one.regret <= 0.005 for one in outcomes), "seeds", "higher"),
        "largest regret": (lambda outcomes: max(one.regret for one in outcomes), "loss", "lower"),
        "makespan": (
            lambda outcomes: statistics.median(one.makespan for one in outcomes),
            "simulated minutes",
            "lower",
        ),
    }
    for name, (measure, unit, better) in measures.items():
        peers = {peer: measure(outcomes) for peer, outcomes in outcomes_by_engine.items() if peer != kind}
        aim = {"saved": 0.93}.get(name) if kind == "promotion" else None
        show(f"{kind}: {name} ({size})", unit, better, measure(outcomes_by_engine[kind]), peers, aim)


def plan(kind: str, seed: int, **changes: Any) -> Opened:
    """A sweep over the curves, by this scheduler."""
    scheduler: dict[str, Any] = {"kind": kind, "rungs": list(RUNGS), "eta": ETA}
    if kind == "median":
        scheduler = {"kind": kind, "rungs": list(range(1, EPOCHS + 1))}
    fields: dict[str, Any] = {
        "sweep": "curves",
        "recipe": "0" * 64,
        "space": {"p.a": NUMBERS["p.a"]},
        "written": {"p.a": 1e-3},
        "sampler": "random",
        "seed": seed,
        "steps": EPOCHS,
        "scheduler": scheduler,
    }
    return Opened(**(fields | changes))


def run(opened: Opened, trials: int, workers: int, seed: int) -> SearchOutcome:
    """Our own scheduler on the pool of a seed, trial n with its curve n, in simulated time."""
    sweep = fold([opened, Budgeted(trials=trials, parallel=workers, retries=0, failed_trials=0)])
    sampler, now = TrialSampler(), 0.0
    queue: list[tuple[float, int]] = []
    while True:
        while events := decide(sweep, sampler) or _acted(sweep, now, queue, seed):
            sweep = sweep.after(*events)
        if not queue:
            break
        now, number = heapq.heappop(queue)
        trial = sweep.trials[number]
        if trial.state != "running":
            continue
        step = trial.last_step + 1
        sweep = sweep.after(*_epoch(sweep, number, step, curve(seed, number).loss(step)))
        if step < trial.until:
            heapq.heappush(queue, (now + curve(seed, number).pace, number))
    assert sweep.closed is not None and sweep.closed.outcome == "complete", sweep.closed
    return outcome(seed, trials, {trial.number: trial.last_step for trial in sweep.trials.values()}, now)


def _acted(sweep: SweepState, now: float, queue: list[tuple[float, int]], seed: int) -> list[Event]:
    """What is due takes no time here."""
    events: list[Event] = []
    for action in next_actions(sweep):
        match action:
            case Start() | Continue() | StartBranch():
                heapq.heappush(queue, (now + curve(seed, action.trial).pace, action.trial))
                events.append(Started(trial=action.trial, job=f"{action.trial}", nodes=("a",)))
            case Stop(trial=number, reason=reason):
                events.append(Ended(trial=number, outcome="stopped", reason=reason))
    return events


def _epoch(sweep: SweepState, number: int, step: int, loss: float) -> list[Event]:
    reported: list[Event] = [Reported(trial=number, step=step, value=loss)]
    if step == sweep.plan.steps:
        return [*reported, Ended(trial=number, outcome="completed", value=loss)]
    return [*reported, Paused(trial=number, step=step)] if step == sweep.trials[number].until else reported


def population(seeds: int) -> None:
    """Print the quality that a population reaches on the toy, whose best is 1.2, beside random search at equal cost."""
    qualities = [toy(seed) for seed in range(seeds)]
    drawn = [random_toy(seed) for seed in range(seeds)]
    show(
        "population: quality, median",
        "of 1.2",
        "higher",
        statistics.median(qualities),
        {"random": statistics.median(drawn)},
    )
    show("population: quality, worst seed", "of 1.2", "higher", min(qualities), {"random": min(drawn)}, 1.18)
    reached = sum(reached_quality >= 1.18 for reached_quality in qualities)
    show(
        f"population: at least 1.18, of {seeds}", "seeds", "higher", reached, {"random": sum(d >= 1.18 for d in drawn)}
    )


MEMBERS, INTERVALS, EVERY = 4, 50, 4


def quality(theta: tuple[float, float]) -> float:
    """What is to be maximised: 1.2 - (theta0^2 + theta1^2)."""
    return 1.2 - (theta[0] ** 2 + theta[1] ** 2)


def ascend(theta: tuple[float, float], h: tuple[float, float], steps: int) -> tuple[float, float]:
    """Steps of gradient ascent on the surrogate 1.2 - (h0 theta0^2 + h1 theta1^2), which is what a member sees."""
    for _ in range(steps):
        theta = (theta[0] - 0.02 * h[0] * theta[0], theta[1] - 0.02 * h[1] * theta[1])
    return theta


def toy(seed: int) -> float:
    """The quality of the winner of a population whose weights are copied by branch."""
    space = {"h.a": {"uniform": [0.0, 1.0]}, "h.b": {"uniform": [0.0, 1.0]}}
    scheduler = {"kind": "population", "every": EVERY}
    steps = EVERY * INTERVALS
    opened = plan("population", seed, space=space, written={"h.a": 0.0, "h.b": 1.0}, steps=steps, scheduler=scheduler)
    sweep = fold([opened, Budgeted(trials=MEMBERS, parallel=MEMBERS, retries=0, failed_trials=0)])
    sampler, weights = TrialSampler(), dict[int, tuple[float, float]]()
    commits: dict[tuple[int, int], tuple[float, float]] = {}
    while not sweep.closed or sweep.open_trials:
        if events := decide(sweep, sampler):
            sweep = sweep.after(*events)
            continue
        for action in next_actions(sweep):
            if isinstance(action, Stop):
                sweep = sweep.after(Ended(trial=action.trial, outcome="stopped"))
                continue
            if isinstance(action, StartBranch):
                weights[action.trial] = commits[action.parent, action.step]
            elif isinstance(action, Start):
                weights[action.trial] = (0.9, 0.9)
            sweep = sweep.after(Started(trial=action.trial, job="j", nodes=("a",)))
        for trial in sweep.running:
            h = (trial.parameters["h.a"], trial.parameters["h.b"])
            weights[trial.number] = ascend(weights[trial.number], h, trial.until - trial.last_step)
            commits[trial.number, trial.until] = weights[trial.number]
            sweep = sweep.after(*_epoch(sweep, trial.number, trial.until, -quality(weights[trial.number])))
    assert sweep.best is not None
    return quality(weights[sweep.best.number])


def random_toy(seed: int) -> float:
    draw = random.Random(f"random:{seed}")
    ends = [ascend((0.9, 0.9), (draw.random(), draw.random()), EVERY * INTERVALS) for _ in range(MEMBERS)]
    return max(map(quality, ends))


def controller() -> None:
    """Print what the controller costs beside Optuna's storages, TPE drawing four numbers for each trial."""
    for trials in (10, 100, 1000):
        peers = {name: _optuna(name, trials) for name in ("memory", "journal", "sqlite")}
        value, report, poll = _controlled(trials)
        aims = (15.0, 1.0, 5.0) if trials == 1000 else (None, None, None)
        show(
            f"a trial of {trials}", "CPU-ms", "lower", value, {name: costs[0] for name, costs in peers.items()}, aims[0]
        )
        show(
            f"a report of {trials} trials",
            "CPU-ms",
            "lower",
            report,
            {n: costs[1] for n, costs in peers.items()},
            aims[1],
        )
        show(f"a poll with nothing new at {trials} trials", "CPU-ms", "lower", poll, {}, aims[2])
    show("100 concurrent trials, a report a second each", "cores", "lower", _concurrent(100, 10), {}, 1.0)


def _controlled(trials: int) -> tuple[float, float, float]:
    """CPU-milliseconds of a trial (asked, started, ended, two polls), of a report, and of a poll with nothing new."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        store, sampler = _opened(Path(folder), trials, 1), TrialSampler()
        begun, reporting = time.process_time(), 0.0
        while (sweep := store.state()) is not None and not sweep.closed:
            if decided := decide(sweep, sampler):
                store.append(*decided)
                continue
            number = sweep.running[0].number
            store.append(Started(trial=number, job="j", nodes=("a",)))
            value = _value(sweep.trials[number].parameters)
            before = time.process_time()
            for step in range(1, 11):
                store.append(Reported(trial=number, step=step, value=value))
                store.state()
            reporting += time.process_time() - before
            store.append(Ended(trial=number, outcome="completed", value=value))
        spent = time.process_time() - begun - reporting
        before = time.process_time()
        for _ in range(100):
            store.log_requests()
            store.state()
        poll = (time.process_time() - before) / 100
        return 1000 * spent / trials, 1000 * reporting / trials / 10, 1000 * poll


def _opened(folder: Path, trials: int, parallel: int) -> SweepStore:
    store = SweepStore(folder)
    opened = plan("none", 0, space=NUMBERS, written=dict.fromkeys(NUMBERS, 1e-3), sampler="tpe", steps=10**6)
    opened = Opened(**{**vars(opened), "scheduler": {"kind": "none"}})
    store.open(opened, Budgeted(trials=trials, parallel=parallel, retries=0, failed_trials=0))
    return store


def _value(parameters: Any) -> float:
    return float(sum(abs(value - 0.01) for value in parameters.values()))


def _concurrent(trials: int, seconds: int) -> float:
    """The cores that the log and the state of so many running trials take, each with a report a second."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        store, sampler = _opened(Path(folder), trials, trials), TrialSampler()
        sweep = store.state()
        assert sweep is not None
        store.append(*decide(sweep, sampler))
        store.append(*(Started(trial=number, job="j", nodes=("a",)) for number in range(trials)))
        begun = time.process_time()
        for step in range(1, seconds + 1):
            for number in range(trials):
                store.append(Reported(trial=number, step=step, value=1.0))
                sweep = store.state()
                assert sweep is not None
                decide(sweep, sampler)
        return (time.process_time() - begun) / seconds


def _optuna(storage: str, trials: int) -> tuple[float, float]:
    """The same of Optuna alone: ask, four suggestions and tell; and a report."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        where: Any = {
            "memory": lambda: None,
            "journal": lambda: optuna.storages.JournalStorage(
                optuna.storages.journal.JournalFileBackend(f"{folder}/journal")  # type: ignore[no-untyped-call]
            ),
            "sqlite": lambda: f"sqlite:///{folder}/study.db",
        }[storage]()
        sampler = optuna.samplers.TPESampler(seed=0, multivariate=True, constant_liar=True)
        study = optuna.create_study(storage=where, sampler=sampler)
        begun, reporting = time.process_time(), 0.0
        for _ in range(trials):
            trial = study.ask()
            value = _value({name: trial.suggest_float(name, 1e-5, 1e-1, log=True) for name in NUMBERS})
            before = time.process_time()
            for step in range(10):
                trial.report(value, step)
            reporting += time.process_time() - before
            study.tell(trial, value)
        spent = time.process_time() - begun - reporting
        return 1000 * spent / trials, 1000 * reporting / trials / 10


def show(metric: str, unit: str, better: str, value: float, peers: dict[str, float], aim: float | None = None) -> None:
    """Print a metric as one line of JSON."""
    line = {"benchmark": "sweep", "metric": metric, "unit": unit, "better": better, "ours": round(value, 4)}
    print(
        json.dumps({**line, "peers": {name: round(number, 4) for name, number in peers.items()}, "aim": aim}),
        flush=True,
    )


if __name__ == "__main__":
    main()
