"""The decisions and actions of a sweep: pure functions of its state.

Decisions are events, logged before the controller acts on them; actions follow from the state again and again until
the log says that they are done. So the controller may die between any two lines of the log: its successor takes the
same decisions, and repeats only actions that may be repeated (submit-or-adopt, cancel).
"""

from dataclasses import dataclass

from assets.sweeps import halving, space
from assets.sweeps.events import Asked, Closed, Decided, Event, Retried, SweepOutcome
from assets.sweeps.space import Parameters
from assets.sweeps.state import SweepState


@dataclass(frozen=True)
class Start:
    """Submit the job of this attempt, or adopt it, then log Started."""

    trial: int
    attempt: int
    parameters: Parameters


@dataclass(frozen=True)
class Stop:
    """Cancel the trial's job, or find that there is none, then log Ended."""

    trial: int
    reason: str


def decide(sweep: SweepState) -> list[Event]:
    """All decisions that are due, in the order in which to log them; empty when nothing can be decided yet.

    Each decision assumes that those before it are logged, so a crash while they are written changes none of them.
    """
    decided = []
    while event := _next_decision(sweep):
        decided.append(event)
        sweep = sweep.after(event)
    return decided


def next_actions(sweep: SweepState) -> list[Start | Stop]:
    """The actions that are due now, by the number of the trial; the same until the log says that they are done."""
    actions: list[Start | Stop] = []
    for trial in sweep.running:
        if sweep.closed:
            actions.append(Stop(trial.number, f"the sweep is closed: {sweep.closed.outcome}"))
        elif trial.told_to_stop:
            actions.append(Stop(trial.number, "stopped by successive halving"))
        elif trial.state == "pending":
            actions.append(Start(trial.number, trial.attempt, trial.parameters))
    return actions


def closing(sweep: SweepState, outcome: SweepOutcome, reason: str = "") -> Closed:
    """The event that closes the sweep with the best trial so far."""
    best = sweep.best
    return Closed(
        outcome=outcome,
        best_trial=best.number if best else None,
        best_value=best.value if best else None,
        reason=reason,
    )


def _next_decision(sweep: SweepState) -> Event | None:
    """The first decision that is due: a verdict, else one about failures, else a new trial, else the end."""
    if sweep.closed:
        return None
    return _verdict(sweep) or _about_failures(sweep) or _new_trial(sweep) or _end(sweep)


def _verdict(sweep: SweepState) -> Decided | None:
    """The verdict on the first arrival without one, against the arrivals before it; later arrivals do not count."""
    for index, arrival in enumerate(sweep.arrivals):
        judged = (arrival.trial, arrival.rung) in sweep.verdicts
        if judged or sweep.trials[arrival.trial].told_to_stop:
            continue
        earlier = [each.value for each in sweep.arrivals[:index] if each.rung == arrival.rung]
        verdict = halving.verdict(earlier, arrival.value, sweep.plan.eta)
        return Decided(trial=arrival.trial, step=arrival.rung, verdict=verdict)
    return None


def _about_failures(sweep: SweepState) -> Event | None:
    """Close the sweep when too many trials failed for good, else start a failed trial again."""
    failed = sweep.failed_for_good
    if len(failed) > sweep.plan.failed_trials:
        ended = failed[-1].ended
        last = f"the last, trial {failed[-1].number}: {ended.reason if ended else ''}"
        return closing(sweep, "failed", f"{len(failed)} trials failed, at most {sweep.plan.failed_trials} may; {last}")
    if sweep.retryable:
        trial = sweep.retryable[0]
        return Retried(trial=trial.number, attempt=trial.attempt + 1)
    return None


def _new_trial(sweep: SweepState) -> Asked | None:
    plan, number = sweep.plan, len(sweep.trials)
    if number >= plan.trials or len(sweep.running) >= plan.parallel:
        return None
    running = [trial.parameters for trial in sweep.running]
    parameters = space.suggest(plan.space, plan.sampler, plan.seed, number, sweep.history(), running)
    return Asked(trial=number, parameters=parameters)


def _end(sweep: SweepState) -> Closed | None:
    if len(sweep.trials) < sweep.plan.trials or sweep.running:
        return None
    return closing(sweep, "complete") if sweep.best else closing(sweep, "failed", "no trial ended with a finite value")
