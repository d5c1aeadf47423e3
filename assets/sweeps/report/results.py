"""The report of a sweep as plain values: for pages, pictures, metadata and the command line."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slipway.assets.sweeps import lineage, ranking
from slipway.assets.sweeps.events import Ended, Event, Paused, Proposed, Started
from slipway.assets.sweeps.full_scale_choice import WRITTEN, choose
from slipway.assets.sweeps.ranking import RungAgreement
from slipway.assets.sweeps.report import compared, importance, rungs
from slipway.assets.sweeps.report.compared import TrialComparison
from slipway.assets.sweeps.report.importance import ParameterImportance
from slipway.assets.sweeps.report.rungs import RungCost
from slipway.assets.sweeps.state import SweepState, Trial
from slipway.trainer.base.units import HOUR


@dataclass(frozen=True)
class TrialRow:
    """One row of the table of trials."""

    trial: int
    parameters: Mapping[str, Any]
    last_step: int
    value: float | None
    """The last reported value; None for a trial that failed or diverged, and before the first report."""
    outcome: str
    """The state of the trial, with the reason for a failure."""
    curve: tuple[tuple[int, float | None], ...]
    """The value at each reported step, ascending; None for a value that is not finite."""
    rank_hours: float
    attempts: int
    parent: int | None
    """The trial whose checkpoint it continues, in population-based training."""


@dataclass(frozen=True)
class FailureReason:
    """A reason for which trials failed."""

    reason: str
    trials: tuple[int, ...]
    """By number, ascending."""


@dataclass(frozen=True)
class SweepReport:
    """The results of a sweep as plain values."""

    sweep: str
    outcome: str
    """The outcome of the closed sweep, or "open"."""
    reason: str
    """The reason of the outcome; may be empty."""
    best_trial: int | None
    best_value: float | None
    best_parameters: Mapping[str, Any]
    """Empty without a best trial."""
    next_best: TrialComparison | None
    """The best trial compared with the next best."""
    won: TrialComparison | None
    """The best trial compared with the recipe as it is written; None if that is the best trial."""
    chosen: str
    """The choice for full scale, with its reason; empty before the sweep is complete."""
    rows: tuple[TrialRow, ...]
    """By trial number."""
    order: tuple[int, ...]
    """The trials from best to worst: more steps before lower values, trials without a value last."""
    importance: tuple[ParameterImportance, ...] | None
    """The most important first. None for too few trials."""
    rungs: tuple[RungCost, ...]
    """The cost and savings of each rung, ascending."""
    agreement: tuple[RungAgreement, ...]
    """The agreement of each rung with the next one."""
    warning: str
    """A warning if low rungs rank differently from high ones; otherwise empty."""
    failures: tuple[FailureReason, ...]
    """The reasons of failures, the most frequent first."""
    planned: int
    """The number of trials in the budget."""
    steps: int
    """Steps of a complete trial."""
    space: Mapping[str, Mapping[str, Any]]
    rank_hours: float
    """The rank-hours of all trials, including failed ones."""
    rank_hours_saved: float
    """The cost of the saved steps, at the mean cost of the trained steps."""
    compute_saved: float
    """The share of steps, 0 to 1, that early stopping saved."""
    events: int
    """The number of events in the log from which the report is made."""


def report(sweep: SweepState, log: Sequence[Event], ranks_per_node: int) -> SweepReport:
    """The report of an open or closed sweep, from its state and the log."""
    best = sweep.best
    seconds = rank_seconds(log, ranks_per_node)
    costs = rungs.rung_costs(sweep, sweep.rungs, seconds)
    hours = sum(seconds.values()) / HOUR
    choice = choose(sweep)
    return SweepReport(
        sweep=sweep.plan.sweep,
        outcome=sweep.closed.outcome if sweep.closed else "open",
        reason=sweep.closed.reason if sweep.closed else "",
        best_trial=best.number if best else None,
        best_value=best.value if best else None,
        best_parameters=best.parameters if best else {},
        next_best=_beside(sweep, compared.next_best(sweep)),
        won=_beside(sweep, sweep.trials.get(WRITTEN)),
        chosen=choice.why if choice else "",
        rows=tuple(_row(sweep, trial, seconds.get(trial.number, 0.0) / HOUR) for trial in sweep.trials.values()),
        order=tuple(
            trial.number for trial in sorted(sweep.trials.values(), key=lambda trial: compared.merit(sweep, trial))
        ),
        importance=importance.importance(sweep),
        rungs=costs,
        agreement=ranking.agreement(sweep),
        warning=ranking.warning(sweep) or "",
        failures=_failures(sweep),
        planned=sweep.planned,
        steps=sweep.plan.steps,
        space=sweep.plan.space,
        rank_hours=hours,
        rank_hours_saved=_hours_saved(costs),
        compute_saved=sweep.compute_saved,
        events=len(log),
    )


def rank_seconds(log: Iterable[Event], ranks_per_node: int) -> dict[int, float]:
    """The rank-seconds of each trial: the time from each start of its job to its pause or end, times its ranks.

    Start-up counts, because it occupies GPUs. A running job counts up to the last event of the log. A trial that never
    started has 0.
    """
    spent: dict[int, float] = {}
    running: dict[int, tuple[float, int]] = {}
    last = 0.0
    for event in log:
        last = max(last, event.at)
        match event:
            case Proposed(trial=trial):
                spent.setdefault(trial, 0.0)
            case Started(trial=trial, nodes=nodes, at=at):
                running.setdefault(trial, (at, len(nodes) * ranks_per_node))  # an adoption logs Started again
            case Paused(trial=trial) | Ended(trial=trial) if trial in running:
                _add_seconds(spent, trial, running.pop(trial), event.at)
            case _:
                pass
    for trial, begun in running.items():
        _add_seconds(spent, trial, begun, last)
    return spent


def _beside(sweep: SweepState, other: Trial | None) -> TrialComparison | None:
    if sweep.best is None or other is None or other is sweep.best:
        return None
    best, beside = (replace(trial, reports=lineage.reports(sweep, trial)) for trial in (sweep.best, other))
    return compared.compared(best, beside, sweep.plan.scheduler.get("noise"))


def _hours_saved(costs: Sequence[RungCost]) -> float:
    steps = sum(cost.steps for cost in costs)
    if not steps:
        return 0.0
    return sum(cost.steps_saved for cost in costs) * sum(cost.rank_hours for cost in costs) / steps


def _failures(sweep: SweepState) -> tuple[FailureReason, ...]:
    failed = {trial.number: trial.ended.reason for trial in sweep.failed_for_good if trial.ended}
    return tuple(
        FailureReason(reason, tuple(number for number, other in sorted(failed.items()) if other == reason))
        for reason, _ in Counter(failed.values()).most_common()
    )


def _row(sweep: SweepState, trial: Trial, rank_hours: float) -> TrialRow:
    reason = ""
    if trial.ended and trial.state == "failed":
        reason = f": {trial.ended.reason}"
    return TrialRow(
        trial=trial.number,
        parameters=trial.parameters,
        last_step=sweep.reached(trial),
        value=trial.value,
        outcome=f"{trial.state}{reason}",
        curve=tuple(sorted(trial.reports.items())),
        rank_hours=rank_hours,
        attempts=trial.attempt + 1,
        parent=trial.parent,
    )


def _add_seconds(spent: dict[int, float], trial: int, begun: tuple[float, int], until: float) -> None:
    since, ranks = begun
    spent[trial] = spent.get(trial, 0.0) + max(0.0, until - since) * ranks
