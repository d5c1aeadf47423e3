"""The decisions of a sweep: pure functions of its state.

Decisions are events that are logged before the controller acts on them. The state implies the actions until the log
says that they are done. So the controller may die between any two lines of the log: its successor takes the same
decisions, and repeats only actions that are repeatable.
"""

import dataclasses

from slipway.assets.sweeps.events import Budgeted, Closed, Decided, Event, Proposed, Resumed, Retried, SweepOutcome
from slipway.assets.sweeps.samplers import MODELS, TrialSampler
from slipway.assets.sweeps.schedulers.protocol import SweepScheduler
from slipway.assets.sweeps.schedulers.scheduler_choice import scheduler_of
from slipway.assets.sweeps.state import SweepState
from slipway.trainer.base.quantities import counted

EXHAUSTED = "the space"
"""The author of the budget that ends a sweep at its present trials, because its space has no more."""


def decide(sweep: SweepState, sampler: TrialSampler) -> list[Event]:
    """All due decisions, in the order in which to log them; empty if nothing can be decided yet.

    Each decision assumes that the ones before it are logged, so a crash while they are written changes none of them.
    `sampler` only caches what it has read of the sweep, without influence on the decisions.
    """
    decided: list[Event] = []
    scheduler = scheduler_of(sweep.plan)
    while event := _next_decision(sweep, scheduler, sampler):
        decided.append(event)
        sweep = sweep.after(event)
    return decided


def closing(sweep: SweepState, outcome: SweepOutcome, reason: str = "") -> Closed:
    """The event that closes the sweep with the best trial so far."""
    best = sweep.best
    return Closed(
        outcome=outcome,
        best_trial=best.number if best else None,
        best_value=best.value if best else None,
        reason=reason,
    )


def _next_decision(sweep: SweepState, scheduler: SweepScheduler, sampler: TrialSampler) -> Event | None:
    """The first due decision: a verdict, or one about failures, or the use of a free slot, or the end."""
    if sweep.closed:
        return None
    return (
        scheduler.judge(sweep)
        or _too_many_failures(sweep)
        or _at_the_goal(sweep)
        or (None if sweep.pause else _for_a_slot(sweep, scheduler, sampler) or _let_go(sweep))
        or _end(sweep)
    )


def _too_many_failures(sweep: SweepState) -> Closed | None:
    failed = sweep.failed_for_good
    most = sweep.budget.failed_trials
    if len(failed) <= most:
        return None
    ended = failed[-1].ended
    last = f"the last, trial {failed[-1].number}: {ended.reason if ended else ''}"
    return closing(sweep, "failed", f"{counted(len(failed), 'trial')} failed, at most {most} may; {last}")


def _at_the_goal(sweep: SweepState) -> Closed | None:
    """All unfinished trials are stopped, so the best trial is the one that reached the goal."""
    if not sweep.goal_reached:
        return None
    reached = [trial for trial in sweep.trials.values() if sweep.lowest in trial.reports.values()]
    goal = f"the goal is reached: {sweep.lowest:g}, at most {sweep.budget.goal:g}"
    return Closed(outcome="complete", best_trial=reached[0].number, best_value=sweep.lowest, reason=goal)


def _for_a_slot(sweep: SweepState, scheduler: SweepScheduler, sampler: TrialSampler) -> Event | None:
    """The use of a free slot: a failed trial, a trial that a person interrupted, one that continues, or a new one.

    If the sampler does not learn from the other trials, new trials come first: waiting for the others would teach it
    nothing, and the choice of trials that continue is then made among more.
    """
    if len(sweep.running) >= sweep.budget.parallel:
        return None
    if sweep.retryable:
        trial = sweep.retryable[0]
        return Retried(trial=trial.number, attempt=trial.attempt + 1)
    interrupted = [trial for trial in sweep.paused if trial.paused_at != trial.until and not trial.told_to_stop]
    if interrupted:
        return Resumed(trial=interrupted[0].number, until=interrupted[0].until)
    if sweep.plan.sampler not in MODELS and (new := _new_trial(sweep, scheduler, sampler)):
        return new
    return scheduler.go_on(sweep) or _new_trial(sweep, scheduler, sampler)


def _new_trial(sweep: SweepState, scheduler: SweepScheduler, sampler: TrialSampler) -> Proposed | Budgeted | None:
    if sweep.drawn >= sweep.budget.trials:
        return None
    parameters = sampler.parameters(sweep)
    if parameters is None:
        return dataclasses.replace(sweep.budget, trials=sweep.drawn, by=EXHAUSTED, why=_exhausted(sweep), request=0)
    number = len(sweep.trials)
    return Proposed(trial=number, parameters=parameters, until=scheduler.until(number, 0))


def _exhausted(sweep: SweepState) -> str:
    if sweep.plan.sampler == "grid":
        return f"the grid has only {counted(sweep.drawn, 'trial')}"
    constraints = "; ".join(sweep.plan.constraints)
    return f"after {counted(sweep.drawn, 'trial')} hardly any draw fits the constraints: {constraints}"


def _let_go(sweep: SweepState) -> Decided | None:
    """Stop the waiting trials once nothing runs any more, because none of them can continue."""
    if sweep.running:
        return None
    waiting = [trial for trial in sweep.paused if trial.is_waiting]
    if not waiting:
        return None
    return Decided(trial=waiting[0].number, step=waiting[0].until, verdict="stop")


def _end(sweep: SweepState) -> Closed | None:
    if sweep.drawn < sweep.budget.trials or sweep.open_trials or sweep.retryable:
        return None
    reason = sweep.budget.why if sweep.budget.by == EXHAUSTED else ""
    if sweep.best:
        return closing(sweep, "complete", reason)
    return closing(sweep, "failed", "no trial ended with a finite value")
