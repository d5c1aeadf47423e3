"""The pictures of a sweep: curves, parallel coordinates, importance, rungs.

Their cost is bounded: all trials together are a few paths with gaps, and only the best `SINGLED_OUT` trials have a line
of their own, which links to the trial's row on the page.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slipway.assets.figures import new_figure
from slipway.assets.sweeps.full_scale_choice import WRITTEN
from slipway.assets.sweeps.report.results import SweepReport, TrialRow
from slipway.trainer.base.quantities import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SINGLED_OUT = 40
"""The number of best trials with a line of their own."""
MOST_POINTS = 24
"""The most points of one trial's curve; longer curves are thinned, but keep the last report."""
MOST_LINES = 150
"""The most lines of parallel coordinates: the best `SINGLED_OUT` trials, and a regular sample of the others."""
CLASSES = 5
"""The number of rank classes, each with a colour."""
CROWD = "#b0bec5"
BEST = "#c62828"
RECIPE = "#212121"
LINE = tuple[Sequence[float], Sequence[float]]


def pictures(report: SweepReport) -> dict[str, "Figure"]:
    """The pictures with data, by title."""
    drawn = {"Curves": curves(report), "Parallel coordinates": parallel(report)}
    drawn |= {"Importance": importance(report), "Rungs": rungs(report)}
    return {title: figure for title, figure in drawn.items() if figure is not None}


def curves(report: SweepReport) -> "Figure | None":
    """The validation loss of every trial by step; None before the first report."""
    lines = {row.trial: points_of(row) for row in report.rows}
    lines = {trial: line for trial, line in lines.items() if line[0]}
    if not lines:
        return None
    figure = new_figure((8.0, 3.8))
    axes = figure.subplots()
    for cost in report.rungs[:-1]:
        axes.axvline(cost.end, color="#eceff1", zorder=0)
    _crowd(axes, lines.values(), CROWD)
    _one_by_one(axes, report, lines)
    axes.set(xlabel="step", ylabel="validation loss", xscale="log", ylim=_limits(lines.values()))
    ends = sorted({cost.end for cost in report.rungs})
    if ends:
        axes.set_xticks(ends, [f"{end:,}" for end in ends])  # trials are compared at rungs
        axes.set_xticks([], minor=True)
    axes.legend(fontsize=7, loc="upper right")
    return figure


def parallel(report: SweepReport) -> "Figure | None":
    """A line through the parameters of each finished trial, the best class on top; None for fewer than two trials."""
    names = [name for name in report.space if any(name in row.parameters for row in report.rows)]
    ranked = [row for row in _ranked(report) if row.value is not None]
    if not names or len(ranked) < 2:
        return None
    figure = new_figure((8.0, 3.8))
    axes = figure.subplots()
    scales = {name: _Scale(report.space[name], [row.parameters.get(name) for row in ranked]) for name in names}
    lines = {row.trial: _heights(row, scales, 1 - rank / (len(ranked) - 1)) for rank, row in enumerate(ranked)}
    colors = _colors()
    size = math.ceil(len(ranked) / CLASSES)
    drawn = _drawn(ranked)
    for which in reversed(range(CLASSES)):
        members = [lines[row.trial] for row in ranked[which * size : (which + 1) * size] if row.trial in drawn]
        _crowd(axes, members, colors[which], alpha=0.9 if which == 0 else 0.5)
    _one_by_one(axes, report, lines)
    ticks = range(len(names) + 1)
    for at in ticks:
        axes.axvline(at, color="#90a4ae", linewidth=0.8, zorder=0)
    for at, name in enumerate(names):
        for height, label in scales[name].ends():
            axes.annotate(label, (at, height), fontsize=6, ha="center", va="center", bbox=_BOX)
    axes.set_xticks(ticks, [*(name.split(".")[-1] for name in names), "rank, best on top"], fontsize=8)
    axes.set(yticks=[], ylim=(-0.12, 1.08), xlim=(-0.3, len(names) + 0.3))
    if len(drawn) < len(ranked):
        axes.set_title(
            f"{len(drawn)} of {len(ranked)} trials: the best, and others at equal distances", fontsize=8, pad=24
        )
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return figure


def importance(report: SweepReport) -> "Figure | None":
    """The share of each parameter with its interval; None for too few trials."""
    if not report.importance:
        return None
    parameters = report.importance[::-1]
    figure = new_figure((8.0, 1.0 + 0.28 * len(parameters)))
    axes = figure.subplots()
    share = [parameter.share for parameter in parameters]
    reach = [
        [parameter.share - min(parameter.low, parameter.share) for parameter in parameters],
        [max(0, parameter.high - parameter.share) for parameter in parameters],
    ]
    axes.barh(
        [parameter.parameter for parameter in parameters],
        share,
        xerr=reach,
        color="#80cbc4",
        ecolor="#455a64",
        capsize=3,
    )
    axes.set(xlabel="share of the differences between trials; line: nine in ten resamplings", xlim=(0, 1))
    return figure


def rungs(report: SweepReport) -> "Figure | None":
    """The steps that each rung cost, and the steps that stopping trials there saved; None without rungs."""
    if len(report.rungs) < 2:
        return None
    figure = new_figure((8.0, 2.8))
    axes = figure.subplots()
    at = range(len(report.rungs))
    axes.bar([x - 0.2 for x in at], [cost.steps for cost in report.rungs], 0.4, label="trained", color="#1565c0")
    axes.bar([x + 0.2 for x in at], [cost.steps_saved for cost in report.rungs], 0.4, label="saved", color="#a5d6a7")
    axes.set_xticks(list(at), [f"to {cost.end}\n{counted(cost.trained, 'trial')}" for cost in report.rungs], fontsize=8)
    axes.set(ylabel="steps")
    axes.legend(fontsize=7)
    return figure


_BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}


class _Scale:
    """The axis of one parameter: its values are at 0 to 1, and a trial without the parameter is at -0.1.

    The recipe's own value may be outside the space. On a logarithmic axis, 0 is at the lower end.
    """

    def __init__(self, domain: Mapping[str, Any], values: Sequence[Any]) -> None:
        kind = next(iter(set(domain) & {"loguniform", "uniform", "randint", "choice"}))
        self._log = kind == "loguniform"
        self._absent = any(value is None for value in values)
        self._domain_choices = domain[kind] if kind == "choice" else ()
        self._choices = [str(choice) for choice in self._domain_choices]
        self._nothing = False
        if not self._choices:
            known = [value for value in values if isinstance(value, int | float)]
            drawable = [value for value in known if value > 0 or not self._log]
            self._nothing = len(drawable) < len(known)
            self._low = min([domain[kind][0], *drawable])
            self._high = max([domain[kind][1], *drawable])

    def height(self, value: Any) -> float:
        if value is None:
            return -0.1
        if self._choices:
            index = self._choices.index(str(value)) if str(value) in self._choices else 0
            return index / max(1, len(self._choices) - 1)
        value = max(value, self._low)
        low, high, value = (math.log(number) if self._log else number for number in (self._low, self._high, value))
        return float((value - low) / ((high - low) or 1))

    def ends(self) -> list[tuple[float, str]]:
        """The labels of the axis, with their heights."""
        if self._choices:
            labels = [(self.height(choice), _label(choice)) for choice in self._domain_choices]
        else:
            low = f"{self._low:.3g} or 0" if self._nothing else f"{self._low:.3g}"
            labels = [(0.0, low), (1.0, f"{self._high:.3g}")]
        return [*labels, *([(-0.1, "none")] if self._absent else [])]


def _label(choice: Any) -> str:
    """A short label for a choice; for a section, its values."""
    parts = choice.values() if isinstance(choice, Mapping) else [choice]
    return ", ".join(map(str, parts))[:14]


def _heights(row: TrialRow, scales: Mapping[str, _Scale], rank: float) -> LINE:
    heights = [scale.height(row.parameters.get(name)) for name, scale in scales.items()]
    return list(range(len(heights) + 1)), [*heights, rank]


def _drawn(ranked: Sequence[TrialRow]) -> set[int]:
    """The numbers of the trials in the parallel coordinates: if there are many, the best and a sample of the others."""
    best = ranked[:SINGLED_OUT]
    others = ranked[SINGLED_OUT:]
    every = max(1, math.ceil(len(others) / (MOST_LINES - SINGLED_OUT)))
    return {row.trial for row in (*best, *others[::every])}


def _ranked(report: SweepReport) -> list[TrialRow]:
    rows = {row.trial: row for row in report.rows}
    return [rows[number] for number in report.order]


def points_of(row: TrialRow) -> LINE:
    """The steps and values of a trial's finite reports, thinned."""
    points = [(step, value) for step, value in row.curve if value is not None]
    every = max(1, math.ceil(len(points) / MOST_POINTS))
    thinned = [point for index, point in enumerate(points) if index % every == 0 or index == len(points) - 1]
    return [step for step, _ in thinned], [value for _, value in thinned]


def _crowd(axes: "Axes", lines: Iterable[LINE], color: str, alpha: float = 0.7) -> None:
    """Draw many lines as one path with gaps, so that the size of a picture depends on its points, not its trials."""
    x: list[float] = []
    y: list[float] = []
    for xs, ys in lines:
        x += [*xs, math.nan]
        y += [*ys, math.nan]
    axes.plot(x, y, color=color, alpha=alpha, linewidth=0.6, marker="." if len(x) < 60 else None, markersize=2)


def _one_by_one(axes: "Axes", report: SweepReport, lines: Mapping[int, LINE]) -> None:
    """Draw the best trials with a line each, and on top the best trial and the recipe, with labels."""
    named = {WRITTEN: (RECIPE, "--", f"trial {WRITTEN}: the recipe as it is written")}
    if report.best_trial is not None:
        same = ", the recipe as it is written" if report.best_trial == WRITTEN else ""
        named[report.best_trial] = (BEST, "-", f"trial {report.best_trial}: the best{same}")
    ranks = {number: rank for rank, number in enumerate(report.order[:SINGLED_OUT]) if number in lines}
    for number in sorted(
        ranks.keys() | named.keys() & lines.keys(), key=lambda number: (number in named, -ranks.get(number, 0))
    ):
        color = _colors()[CLASSES * ranks.get(number, 0) // len(report.order)]
        color, style, label = named.get(number, (color, "-", None))
        (line,) = axes.plot(*lines[number], style, color=color, linewidth=1.8 if label else 0.8, label=label, alpha=0.9)
        if len(lines[number][0]) == 1:  # a line with one point would be invisible
            line.set(marker="o", markersize=4)
        line.set_gid(f"line-{number}")
        line.set_url(f"#trial-{number}")


def _colors() -> list[str]:
    """The colours of the classes, from the best to the worst."""
    return ["#00695c", "#26a69a", "#80cbc4", "#b0bec5", "#cfd8dc"]


def _limits(lines: Iterable[LINE]) -> tuple[float, float]:
    """The range of the losses without the highest twentieth, so that a diverged trial does not flatten the others."""
    values = sorted(value for _, ys in lines for value in ys)
    top = values[min(len(values) - 1, math.ceil(0.95 * len(values)))]
    margin = 0.05 * ((top - values[0]) or 1.0)
    return values[0] - margin, top + margin
