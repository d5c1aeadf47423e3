"""A small world for sweeps: trials with known learning curves, run by a minimal executor.

What it does next is a function of where the sweep stands, as it is of a launcher whose jobs outlive their
controller. To kill the controller is to stop reading; to resume is to run from what the log says.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slipway.assets.sweeps.actions import Continue, Pause, Start, StartBranch, Stop, next_actions
from slipway.assets.sweeps.decisions import decide
from slipway.assets.sweeps.events import Budgeted, Ended, Event, Opened, Paused, Reported, Started, finite_or_none
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.state import SweepState, Trial, fold

Curve = Callable[[Mapping[str, Any], int], float | None]
"""The value of a trial with these parameters at this step; raises `CrashError` when its job fails."""

STOPPING = {"kind": "stopping", "rungs": [1, 3, 9], "eta": 3}
SCHEDULERS: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "stopping": STOPPING,
    "promotion": {"kind": "promotion", "rungs": [1, 3, 9], "eta": 3},
    "promotion on warm slots": {"kind": "promotion", "rungs": [1, 3, 9], "eta": 3, "restart_steps": 0.3},
    "hyperband": {"kind": "hyperband", "rungs": [1, 3, 9], "eta": 3},
    "median": {"kind": "median", "rungs": [1, 3, 9], "startup": 3},
    "population": {"kind": "population", "every": 3},
}
"""Every kind of scheduler, for trials of 9 steps."""
LONG = {"kind": "stopping", "rungs": [3, 9, 27, 81], "eta": 3}
"""For trials of 81 steps."""


class CrashError(Exception):
    """A trial's job fails."""


def opened(**changes: Any) -> Opened:
    plan: dict[str, Any] = {
        "sweep": "curves-000000000000",
        "recipe": "0" * 64,
        "space": {
            "optimizer.learning_rate": {"loguniform": [1e-4, 1.0]},
            "optimizer.weight_decay": {"uniform": [0.0, 0.5]},
            "model.layers": {"randint": [1, 6]},
            "model.shape": {"choice": ["flat", "deep"]},
        },
        "written": {
            "optimizer.learning_rate": 1e-3,
            "optimizer.weight_decay": 0.1,
            "model.layers": 2,
            "model.shape": "flat",
        },
        "sampler": "random",
        "seed": 0,
        "steps": 9,
        "scheduler": STOPPING,
    }
    return Opened(**(plan | changes))


def budgeted(**changes: Any) -> Budgeted:
    return Budgeted(**({"trials": 8, "parallel": 3, "retries": 0, "failed_trials": 0} | changes))


def begun(**changes: Any) -> tuple[Opened, Budgeted]:
    """The first two events of a sweep, with these fields of either."""
    spent = {name: changes.pop(name) for name in list(changes) if hasattr(budgeted(), name)}
    return opened(**changes), budgeted(**spent)


def power_law(parameters: Mapping[str, Any], step: int) -> float | None:
    """a + b t^-c: the learning rate decides the end, weight decay the speed so that curves cross; above 0.5: diverges.

    Noise that shrinks with the steps is seeded by the parameters themselves.
    """
    rate, decay = parameters["optimizer.learning_rate"], parameters["optimizer.weight_decay"]
    if rate > 0.5:
        return finite_or_none(math.nan)
    end = 1 + 0.1 * math.log10(rate / 0.01) ** 2 + 0.01 * parameters["model.layers"]
    noise = 0.02 * math.sin(1e6 * rate + step) / step
    return float(end + (1 + decay) * step ** -(0.3 + decay) + noise)


def continued(sweep: SweepState, curve: Curve) -> Iterator[Event]:
    """The events from here to the end of the sweep, one after the other; its controller begins here."""
    sampler = TrialSampler()
    while events := decide(sweep, sampler) or _effect(sweep) or _progress(sweep, curve):
        for event in events:
            sweep = sweep.after(event)
            yield event


def log_of(plan: Opened, budget: Budgeted, curve: Curve) -> list[Event]:
    """The log of a sweep that nothing interrupts."""
    return [plan, budget, *continued(fold([plan, budget]), curve)]


def _effect(sweep: SweepState) -> list[Event]:
    match next_actions(sweep):
        case [Start(trial=number, attempt=attempt) | StartBranch(trial=number, attempt=attempt), *_]:
            return [_started(sweep, number, attempt)]
        case [Continue(trial=number, attempt=attempt), *_]:
            return [_started(sweep, number, attempt)]
        case [Pause(trial=number), *_]:
            return [Paused(trial=number, step=sweep.trials[number].last_step)]
        case [Stop(trial=number, reason=reason), *_]:
            return [Ended(trial=number, outcome="stopped", reason=reason)]
    return []


def _started(sweep: SweepState, number: int, attempt: int) -> Event:
    return Started(trial=number, job=f"{sweep.plan.sweep}-{number}-{attempt}", nodes=("a",))


def _progress(sweep: SweepState, curve: Curve) -> list[Event]:
    """The next report of the trial with the least progress; trials differ in speed."""
    if not sweep.running:
        return []
    trial = min(sweep.running, key=lambda trial: (_next_step(sweep, trial) * (1 + trial.number % 3), trial.number))
    if trial.last_step == trial.until == sweep.plan.steps:
        return [Ended(trial=trial.number, outcome="completed", value=trial.reports[trial.last_step])]
    if trial.last_step == trial.until:
        return [Paused(trial=trial.number, step=trial.until)]
    step = _next_step(sweep, trial)
    try:
        return [Reported(trial=trial.number, step=step, value=curve(trial.parameters, step))]
    except CrashError as crash:
        return [Ended(trial=trial.number, outcome="failed", reason=str(crash))]


def _next_step(sweep: SweepState, trial: Trial) -> int:
    """The next rung, or the end."""
    steps = (*sweep.rungs, sweep.plan.steps)
    return next((step for step in steps if step > trial.last_step), sweep.plan.steps)
