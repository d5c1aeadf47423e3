"""Plots as the UI shows them: a small PNG inside Markdown, stored with the event it belongs to."""

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from slipway.assets.figures import new_figure, small_png

if TYPE_CHECKING:  # matplotlib takes a second to import: only the steps that draw pay it
    from matplotlib.figure import Figure

COLOURS = (
    "#2e7d32", "#a5d6a7", "#80cbc4", "#4fc3f7", "#1565c0", "#e53935", "#b71c1c", "#fb8c00", "#6d4c41", "#ffca28",
    "#fff176", "#ce93d8", "#9575cd", "#7986cb", "#f48fb1", "#ad1457", "#90a4ae", "#cfd8dc",
)  # fmt: skip
"""Of layers: greens and blues for what is productive, warm colours for what is lost."""
MOST_POINTS = 200
"""Of a line: a longer one is drawn through the means of as many neighbours as it takes."""


def png_markdown(figure: "Figure", title: str) -> dg.MarkdownMetadataValue:
    """A figure as Markdown with the PNG inside, coarser where it would be too large for the event log."""
    return png(small_png(figure), title)


def png(data: bytes, title: str) -> dg.MarkdownMetadataValue:
    """A PNG as Markdown; it should have no more than `slipway.assets.figures.MOST_BYTES`."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(data).decode()})")


def length_histogram(lengths: Sequence[tuple[int, int]]) -> dg.MarkdownMetadataValue:
    """Documents by length; `lengths` are pairs (bytes from which a bin counts, a power of two; documents in it)."""
    counts = dict(lengths)
    powers = [shortest.bit_length() - 1 for shortest in counts]
    bins = [2**power for power in range(min(powers), max(powers) + 1)] if powers else []
    figure = new_figure()
    axes = figure.subplots()
    axes.bar([_size(shortest) for shortest in bins], [counts.get(shortest, 0) for shortest in bins])
    axes.tick_params("x", rotation=45)
    axes.set(xlabel="bytes, up to twice as many", ylabel="documents")
    return png_markdown(figure, "documents by length")


def _size(count: int) -> str:
    for unit in ("", "K", "M"):
        if count < 1024:
            return f"{count}{unit}"
        count //= 1024
    return f"{count}G"


def curve(series: Mapping[str, Sequence[tuple[int, float]]], x: str, y: str) -> dg.MarkdownMetadataValue:
    """Lines of (x, y) points by label, one plot."""
    return png_markdown(curve_figure(series, x, y), f"{y} by {x}")


def curve_figure(series: Mapping[str, Sequence[tuple[int, float]]], x: str, y: str) -> "Figure":
    """The figure of `curve`; a series of one point shows as a dot."""
    figure = new_figure()
    axes = figure.subplots()
    for label, points in ((label, thinned(points)) for label, points in series.items()):
        axes.plot(
            [at for at, _ in points], [value for _, value in points], label=label, marker="." * (len(points) < 20)
        )
    axes.set(xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def thinned(points: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """At most `MOST_POINTS` points: the means of neighbours, each at the last of their x."""
    every = -(-len(points) // MOST_POINTS)
    if every <= 1:
        return points
    groups = [points[start : start + every] for start in range(0, len(points), every)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def interval(mean: float, low: float, high: float, limit: float, x: str) -> dg.MarkdownMetadataValue:
    """A figure with its interval, beside zero and the limit that its upper end must stay below."""
    figure = new_figure((6.4, 1.6))
    axes = figure.subplots()
    axes.errorbar([mean], [0], xerr=[[mean - low], [high - mean]], fmt="o", capsize=6, color=COLOURS[4])
    axes.axvline(0, color=COLOURS[16], lw=1, label="equal")
    axes.axvline(limit, color=COLOURS[5], lw=1, ls="--", label="margin")
    axes.set(xlabel=x, yticks=[])
    axes.legend(fontsize=7)
    return png_markdown(figure, f"{mean:+.4f}, from {low:+.4f} to {high:+.4f}; the margin is {limit:g}")


def stacked(edges: Sequence[float], layers: Mapping[str, Sequence[float]], x: str, y: str) -> dg.MarkdownMetadataValue:
    """Layers on top of one another, by label: the height of each between two edges, one fewer than there are edges."""
    figure = new_figure()
    axes = figure.subplots()
    below = [0.0] * (len(edges) - 1)
    for (label, heights), colour in zip(layers.items(), itertools.cycle(COLOURS), strict=False):
        top = [low + height for low, height in zip(below, heights, strict=True)]
        axes.fill_between(edges, [*below, below[-1]], [*top, top[-1]], step="post", label=label, color=colour, lw=0)
        below = top
    axes.set(xlabel=x, ylabel=y, xlim=(edges[0], edges[-1]), ylim=(0, max([*below, 1e-9])))
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    return png_markdown(figure, f"{y} by {x}")
