"""What a sweep decides, and what it wants done: pure functions of where it stands.

Decisions are events, logged before anything is done about them; actions are read off the state again and again
until the log says that they are done. So the controller may die between any two lines of the log: its successor
takes the same decisions, and does again only what may be done twice (submit-or-adopt, cancel).
"""

from dataclasses import dataclass

from assets.sweeps import halving, space
from assets.sweeps.events import Asked, Closed, Decided, Event, Retried, SweepOutcome
from assets.sweeps.space import Parameters
from assets.sweeps.state import Sweep


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


def decide(sweep: Sweep) -> list[Event]:
    """All decisions that are due, in the order to log them; none when nothing can be decided yet.

    Each is decided as if those before it were logged already, so a crash amid writing them changes none.
    """
    decided = []
    while event := _next_decision(sweep):
        decided.append(event)
        sweep = sweep.after(event)
    return decided


def next_actions(sweep: Sweep) -> list[Start | Stop]:
    """What is to be done about the trials now, by number; the same again until the log says it is done."""
    actions: list[Start | Stop] = []
    for trial in sweep.running:
        if sweep.closed:
            actions.append(Stop(trial.number, f"the sweep is closed: {sweep.closed.outcome}"))
        elif trial.told_to_stop:
            actions.append(Stop(trial.number, "stopped by successive halving"))
        elif trial.state == "pending":
            actions.append(Start(trial.number, trial.attempt, trial.parameters))
    return actions


def closing(sweep: Sweep, outcome: SweepOutcome, reason: str = "") -> Closed:
    """The event that closes the sweep with the best trial so far."""
    best = sweep.best
    return Closed(
        outcome=outcome,
        best_trial=best.number if best else None,
        best_value=best.value if best else None,
        reason=reason,
    )


def _next_decision(sweep: Sweep) -> Event | None:
    """The one decision that comes first: a verdict, then about failures, then a new trial, then the end."""
    if sweep.closed:
        return None
    return _verdict(sweep) or _about_failures(sweep) or _new_trial(sweep) or _end(sweep)


def _verdict(sweep: Sweep) -> Decided | None:
    """The first arrival not judged yet, against those before it: later ones, read by chance already, do not count."""
    for index, arrival in enumerate(sweep.arrivals):
        judged = (arrival.trial, arrival.rung) in sweep.verdicts
        if judged or sweep.trials[arrival.trial].told_to_stop:
            continue
        earlier = [each.value for each in sweep.arrivals[:index] if each.rung == arrival.rung]
        verdict = halving.verdict(earlier, arrival.value, sweep.plan.eta)
        return Decided(trial=arrival.trial, step=arrival.rung, verdict=verdict)
    return None


def _about_failures(sweep: Sweep) -> Event | None:
    """Give up when too many trials failed for good; else start a failed one again."""
    failed = sweep.failed_lineages
    if len(failed) > sweep.plan.failed_trials:
        ended = failed[-1].ended
        last = f"the last, trial {failed[-1].number}: {ended.reason if ended else ''}"
        return closing(sweep, "failed", f"{len(failed)} trials failed, allowed are {sweep.plan.failed_trials}; {last}")
    if sweep.retryable:
        trial = sweep.retryable[0]
        return Retried(trial=trial.number, attempt=trial.attempt + 1)
    return None


def _new_trial(sweep: Sweep) -> Asked | None:
    plan, number = sweep.plan, len(sweep.trials)
    if number >= plan.trials or len(sweep.running) >= plan.parallel:
        return None
    running = [trial.parameters for trial in sweep.running]
    parameters = space.suggest(plan.space, plan.sampler, plan.seed, number, sweep.history(), running)
    return Asked(trial=number, parameters=parameters)


def _end(sweep: Sweep) -> Closed | None:
    if len(sweep.trials) < sweep.plan.trials or sweep.running:
        return None
    return closing(sweep, "complete") if sweep.best else closing(sweep, "failed", "no trial ended with a finite value")
