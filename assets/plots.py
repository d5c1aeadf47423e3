"""Plots for the UI: a small PNG inside Markdown, stored with its event."""

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from slipway.assets.figures import new_figure, small_png

if TYPE_CHECKING:  # matplotlib takes a second to import, so only the functions that draw import it
    from matplotlib.figure import Figure

COLORS = (
    "#2e7d32", "#a5d6a7", "#80cbc4", "#4fc3f7", "#1565c0", "#e53935", "#b71c1c", "#fb8c00", "#6d4c41", "#ffca28",
    "#fff176", "#ce93d8", "#9575cd", "#7986cb", "#f48fb1", "#ad1457", "#90a4ae", "#cfd8dc",
)  # fmt: skip
"""Colours of layers: greens and blues for productive time, warm colours for lost time."""
MOST_POINTS = 200
"""The most points of a line; longer series are averaged over neighbours."""


def png_markdown(figure: "Figure", title: str) -> dg.MarkdownMetadataValue:
    """A figure as Markdown with a PNG inside, at a lower resolution if it is too large for the event log."""
    return png(small_png(figure), title)


def png(data: bytes, title: str) -> dg.MarkdownMetadataValue:
    """A PNG as Markdown. It should not exceed `slipway.assets.figures.MOST_BYTES`."""
    return dg.MetadataValue.md(f"![{title}](data:image/png;base64,{base64.b64encode(data).decode()})")


def length_histogram(lengths: Sequence[tuple[int, int]]) -> dg.MarkdownMetadataValue:
    """Documents by length; `lengths` are pairs (a bin's lower bound in bytes, a power of two; its documents)."""
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
    """One plot of lines, each a list of (x, y) points, by label."""
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
    """At most `MOST_POINTS` points: means of neighbours, each at the last x of its group."""
    every = -(-len(points) // MOST_POINTS)
    if every <= 1:
        return points
    groups = [points[start : start + every] for start in range(0, len(points), every)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def interval(mean: float, low: float, high: float, limit: float, x: str) -> dg.MarkdownMetadataValue:
    """A plot of a mean with its interval, of zero, and of the limit that must exceed the upper end."""
    figure = new_figure((6.4, 1.6))
    axes = figure.subplots()
    axes.errorbar([mean], [0], xerr=[[mean - low], [high - mean]], fmt="o", capsize=6, color=COLORS[4])
    axes.axvline(0, color=COLORS[16], lw=1, label="equal")
    axes.axvline(limit, color=COLORS[5], lw=1, ls="--", label="margin")
    axes.set(xlabel=x, yticks=[])
    axes.legend(fontsize=7)
    return png_markdown(figure, f"{mean:+.4f}, from {low:+.4f} to {high:+.4f}; the margin is {limit:g}")


def stacked(edges: Sequence[float], layers: Mapping[str, Sequence[float]], x: str, y: str) -> dg.MarkdownMetadataValue:
    """A stacked plot of layers by label; each has one height for every interval between two edges."""
    figure = new_figure()
    axes = figure.subplots()
    below = [0.0] * (len(edges) - 1)
    for (label, heights), color in zip(layers.items(), itertools.cycle(COLORS), strict=False):
        top = [low + height for low, height in zip(below, heights, strict=True)]
        axes.fill_between(edges, [*below, below[-1]], [*top, top[-1]], step="post", label=label, color=color, lw=0)
        below = top
    axes.set(xlabel=x, ylabel=y, xlim=(edges[0], edges[-1]), ylim=(0, max([*below, 1e-9])))
    axes.legend(fontsize=6, loc="center left", bbox_to_anchor=(1.0, 0.5), reverse=True)
    return png_markdown(figure, f"{y} by {x}")
