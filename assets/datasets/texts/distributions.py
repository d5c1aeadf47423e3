"""Distributions of the measures of a recipe's rules, with their thresholds, as one picture.

The picture helps to choose thresholds: it shows where one cuts the documents, and the share of documents beyond it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.assets.datasets.cleaning import rules
from slipway.assets.datasets.documents.extracts import segments
from slipway.assets.figures import new_figure
from slipway.resources import warehouse
from slipway.trainer.base import parsing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SAMPLED = 20_000
"""The number of documents in the picture: those with the lowest hashes of their names."""
BINS = 40
COLUMNS = 4
USUAL = 0.99
"""The share of documents within a picture's range; the others are in its last bar."""
MEASURES = """
    SELECT d.measures FROM read_parquet($segments, filename = 'segment_file') d
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
    WHERE d.measures IS NOT NULL ORDER BY hash(d.file, d.number), d.file, d.number LIMIT $most
"""


@dataclass(frozen=True)
class RuleDistribution:
    """A rule's measures of all documents, including those that it left out."""

    rule: str
    threshold: float
    values: tuple[float, ...]
    """Ascending."""

    @property
    def beyond(self) -> float:
        """The share of documents that this rule alone would leave out."""
        left_out = sum(not rules.keeps(self.rule, value, self.threshold) for value in self.values)
        return left_out / max(len(self.values), 1)

    @property
    def span(self) -> tuple[float, float]:
        """The range of nearly all values, extended to include the threshold."""
        largest = self.values[ceil(USUAL * len(self.values)) - 1]
        return min(self.values[0], self.threshold), max(largest, self.threshold)


def distributions(index: Path, durable: Path, thresholds: Mapping[str, float]) -> list[RuleDistribution]:
    """The distribution of each rule over a sample of an index's documents; empty without documents."""
    paths = [str(path) for path in segments(index, durable)]
    with warehouse.connect() as connection:
        rows = connection.execute(MEASURES, {"segments": paths, "index": str(index), "most": SAMPLED}).fetchall()
    measured = [parsing.value(measures) for (measures,) in rows]
    found_of = {rule: sorted(measures[rule] for measures in measured if rule in measures) for rule in thresholds}
    return [RuleDistribution(rule, thresholds[rule], tuple(values)) for rule, values in found_of.items() if values]


def picture(distributions: Sequence[RuleDistribution]) -> "Figure":
    """A histogram for each rule with a line at the threshold, on a logarithmic scale of documents."""
    rows = -(-len(distributions) // COLUMNS)
    figure = new_figure((12.0, 2.4 * rows))
    axes = figure.subplots(rows, COLUMNS, squeeze=False).flat
    for distribution, at in zip(distributions, axes, strict=False):
        low, high = distribution.span
        high = high if high > low else low + 1
        at.hist([min(value, high) for value in distribution.values], bins=BINS, range=(low, high), log=True)
        at.axvline(distribution.threshold, color="#e53935", lw=1, ls="--")
        at.set_title(
            f"{distribution.rule} {distribution.threshold:g}: leaves out {distribution.beyond:.1%}", fontsize=7
        )
        at.tick_params(labelsize=6)
    for unused in figure.axes[len(distributions) :]:
        unused.set_visible(False)
    return figure
