"""The report of a sweep: the best parameters, the outcome of each trial, the importance of parameters, the saving."""

from collections.abc import Mapping
from dataclasses import dataclass

from assets.sweeps import space
from assets.sweeps.space import Parameters
from assets.sweeps.state import SweepState, Trial

ENOUGH = 4
"""The fewest finished trials for which the importance of parameters is computed."""
TOP = 0.25
"""The share of trials that count as good ones for the importance."""


@dataclass(frozen=True)
class TrialRow:
    """One row of the table of trials."""

    trial: int
    parameters: Parameters
    last_step: int
    value: float | None
    """The value of a finished trial at its last step; None for a trial that failed, diverged or still runs."""
    outcome: str
    """The state of the trial, with the reason for a failure."""


@dataclass(frozen=True)
class SweepReport:
    """The results of a sweep as plain values, for metadata and tables."""

    sweep: str
    outcome: str
    """The outcome of the closed sweep, or "open"."""
    best_trial: int | None
    best_value: float | None
    best_parameters: Parameters
    """Empty without a best trial."""
    rows: tuple[TrialRow, ...]
    """By trial number."""
    importance: Mapping[str, float] | None
    """The share of each parameter, the largest first; the sum is 1. None for too few trials."""
    compute_saved: float
    """The share of steps, 0 to 1, that early stopping saved."""


def report(sweep: SweepState) -> SweepReport:
    """The report of a sweep, closed or not."""
    best = sweep.best
    return SweepReport(
        sweep=sweep.plan.sweep,
        outcome=sweep.closed.outcome if sweep.closed else "open",
        best_trial=best.number if best else None,
        best_value=best.value if best else None,
        best_parameters=best.parameters if best else {},
        rows=tuple(_row(sweep, trial) for trial in sweep.trials.values()),
        importance=importance(sweep),
        compute_saved=sweep.compute_saved,
    )


def importance(sweep: SweepState) -> dict[str, float] | None:
    """How much each parameter decides whether a trial is among the best quarter; None for fewer than `ENOUGH` trials.

    Optuna's PED-ANOVA (Watanabe et al., IJCAI 2023) over completed and stopped trials. It needs only to
    know which trials are good, so it works on ranks (most steps first), while values at different steps could not be
    compared; fANOVA would fit the values. With few trials the result is a hint only.
    """
    if len(sweep.finished) < ENOUGH:
        return None
    import optuna

    domains = space.distributions(sweep.plan.space)
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=TOP)
    with space.quiet_optuna():
        study = optuna.create_study()
        for rank, trial in enumerate(sorted(sweep.finished, key=lambda trial: _merit(sweep, trial))):
            study.add_trial(
                optuna.trial.create_trial(params=dict(trial.parameters), distributions=domains, value=float(rank))
            )
        return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def markdown(report: SweepReport) -> str:
    """The report as a page."""
    names = list(report.rows[0].parameters) if report.rows else []
    lines = [f"# Sweep {report.sweep}: {report.outcome}", ""]
    if report.best_trial is not None:
        lines += [f"Best: trial {report.best_trial}, value {report.best_value:.4f}.", ""]
        lines += [*_table(["parameter", "best"], [[name, _show(report.best_parameters[name])] for name in names]), ""]
    lines += [f"Early stopping saved {report.compute_saved:.0%} of the steps.", "", "## Trials", ""]
    head = ["trial", *names, "last step", "value", "outcome"]
    lines += _table(head, [_cells(row) for row in report.rows])
    if report.importance is not None:
        shares = [[name, f"{share:.0%}"] for name, share in report.importance.items()]
        lines += ["", "## Importance", "", *_table(["parameter", "share"], shares)]
    return "\n".join(lines) + "\n"


def _merit(sweep: SweepState, trial: Trial) -> tuple[bool, int, float, int]:
    """A sort key: the best trial first, and trials without a finite value last."""
    value = trial.value
    return value is None, -sweep.steps_trained(trial), 0.0 if value is None else value, trial.number


def _row(sweep: SweepState, trial: Trial) -> TrialRow:
    reason = f": {trial.ended.reason}" if trial.ended and trial.state == "failed" else ""
    return TrialRow(
        trial=trial.number,
        parameters=trial.parameters,
        last_step=sweep.steps_trained(trial),
        value=trial.value,
        outcome=f"{trial.state}{reason}",
    )


def _cells(row: TrialRow) -> list[str]:
    return [_show(cell) for cell in (row.trial, *row.parameters.values(), row.last_step, row.value, row.outcome)]


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    plain = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *plain]]


def _show(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
