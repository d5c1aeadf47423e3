"""The report of a sweep as Markdown: for the UI and the terminal."""

from collections.abc import Iterator, Mapping, Sequence

from slipway.assets.sweeps.full_scale_choice import WRITTEN
from slipway.assets.sweeps.report.compared import TrialComparison
from slipway.assets.sweeps.report.results import SweepReport, TrialRow
from slipway.trainer.base.units import HOUR

MAX_ROWS = 30
"""The most rows of a table in the event log, which stores every report."""


def markdown(report: SweepReport, most: int | None = None) -> str:
    """The report as a page; with `most`, only that many of the best trials and the total number."""
    names = parameter_names(report)
    lines = [f"# Sweep {report.sweep}: {report.outcome}", ""]
    lines += [f"{line}\n" for line in findings(report)]
    if report.best_trial is not None:
        chosen = [[name, format_value(report.best_parameters.get(name))] for name in names]
        lines += [*_table(["parameter", "best"], chosen), ""]
    if len(report.rungs) > 1:
        lines += ["## Rungs", "", *_table(RUNG_HEAD, list(rung_cells(report))), ""]
    rows = [row for row in report.rows if most is None or row.trial in report.order[:most]]
    lines += ["## Trials", "", *_table(["trial", *names, *ROW_TAIL], [cells(row, names) for row in rows])]
    if len(rows) < len(report.rows):
        lines += ["", f"The best {len(rows)} of {len(report.rows)} trials; the page has all of them."]
    if report.importance is not None:
        shares = [
            [parameter.parameter, f"{parameter.share:.0%}", f"{parameter.low:.0%} to {parameter.high:.0%}"]
            for parameter in report.importance
        ]
        lines += ["", "## Importance", "", *_table(["parameter", "share", "nine in ten resamples"], shares)]
    if report.failures:
        failed = [[str(len(failure.trials)), numbers(failure.trials), failure.reason] for failure in report.failures]
        lines += ["", "## Failures", "", *_table(["trials", "which", "reason"], failed)]
    return "\n".join(lines) + "\n"


def findings(report: SweepReport) -> Iterator[str]:
    """The findings of the sweep, one sentence each."""
    if report.reason:
        yield f"Closed because: {report.reason}."
    if report.best_trial is not None and report.best_value is not None:
        yield f"Best: trial {report.best_trial}, validation loss {report.best_value:.4f}."
    if report.best_trial == WRITTEN:
        yield "The best trial is the recipe as it is written: the search found nothing better."
    if report.won:
        yield f"Against the recipe as it is written, {_difference(report.won)}."
    if report.next_best:
        yield f"Against the next best, {_difference(report.next_best)}."
    if report.chosen:
        yield f"At full scale: {report.chosen}."
    if report.warning:
        yield f"Warning: {report.warning}."
    so_far = " so far" if report.outcome == "open" else ""
    took = f"The trials took {duration(report.rank_hours)}{so_far}"
    if not report.compute_saved:
        yield f"Early stopping has saved nothing{so_far}."
        yield f"{took}."
        return
    yield f"Early stopping saved {report.compute_saved:.0%} of the steps{so_far}."
    yield f"{took}; without early stopping they would have taken about {duration(report.rank_hours_saved)} more."


def duration(rank_hours: float) -> str:
    """A duration in rank-hours (GPU-hours if ranks have GPUs), or in rank-seconds below a tenth of an hour."""
    if rank_hours >= 0.1:
        return f"{rank_hours:.3g} rank-hours"
    return f"{rank_hours * HOUR:.0f} rank-seconds"


def _difference(compared: TrialComparison) -> str:
    """A comparison in words: trial 3, at step 40: 1.7020 beside 1.8000, 0.0980 lower; the noise is 0.0100."""
    how = "lower" if compared.difference >= 0 else "higher"
    sentence = (
        f"trial {compared.other}, at step {compared.step}: "
        f"{compared.best_value:.4f} beside {compared.other_value:.4f}, "
        f"{abs(compared.difference):.4f} {how}"
    )
    if compared.noise is None:
        return f"{sentence}; the noise is not known"
    return f"{sentence}, {'above' if compared.certain else 'within'} the noise of {compared.noise:.4f}"


RUNG_HEAD = ("steps", "trials", "arrived", "went on", "steps trained", "rank-hours", "steps saved")
ROW_TAIL = ("last step", "validation loss", "rank-hours", "outcome")


def rung_cells(report: SweepReport) -> Iterator[list[str]]:
    """The rows of the table of rungs."""
    for cost in report.rungs:
        span = f"{cost.begin} to {cost.end}"
        counts = [cost.trained, cost.arrived, cost.went_on, f"{cost.steps:,}", f"{cost.rank_hours:.3g}"]
        yield [span, *map(str, counts), f"{cost.steps_saved:,}"]


def parameter_names(report: SweepReport) -> list[str]:
    """The parameters of the trials, in the order of the space."""
    return [name for name in report.space if any(name in row.parameters for row in report.rows)]


def cells(row: TrialRow, names: Sequence[str]) -> list[str]:
    """A row of the table of trials."""
    head = str(row.trial) if row.parent is None else f"{row.trial} (of {row.parent})"
    tail = [str(row.last_step), format_value(row.value), f"{row.rank_hours:.3g}", row.outcome]
    return [head, *(format_value(row.parameters.get(name)) for name in names), *tail]


def format_value(value: object) -> str:
    """A value in the form for tables; "-" for None. A section shows its fields."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {format_value(entry)}" for name, entry in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def numbers(trials: Sequence[int]) -> str:
    """Trial numbers, the first ten of them."""
    more = f" and {len(trials) - 10} more" if len(trials) > 10 else ""
    return ", ".join(map(str, trials[:10])) + more


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    plain = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows]
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *plain]]
