"""Exposition: metrics in Prometheus's text format 0.0.4, without a library.

https://prometheus.io/docs/instrumenting/exposition_formats/. A metric is declared once, with its type, its help and its
labels; samples are checked against the declaration.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Kind = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True)
class Metric:
    """The declaration of a metric. Its name has its unit, as usual in Prometheus: _seconds, _bytes, _ratio (0 to 1)."""

    name: str
    kind: Kind
    help: str
    """A sentence without its full stop."""
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    """Of a histogram: the upper bounds of its buckets, ascending, without the last one."""


class Distribution:
    """How many measurements of a histogram were up to each bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one measurement."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Exposition:
    """The samples of one moment, by metric, in the order of their addition."""

    def __init__(self) -> None:
        self._samples: dict[Metric, list[tuple[tuple[str, ...], float | Distribution]]] = {}

    def add(self, metric: Metric, value: float | Distribution | None, *labels: object) -> None:
        """Add a sample, with labels in the order of the metric's; None adds no sample."""
        assert len(labels) == len(metric.labels), f"{metric.name}: found labels {labels}, expected {metric.labels}"
        assert isinstance(value, Distribution) == (metric.kind == "histogram") or value is None, metric.name
        if value is not None:
            self._samples.setdefault(metric, []).append((tuple(map(str, labels)), value))

    def update(self, other: "Exposition") -> None:
        """Take over all samples of another one."""
        for metric, samples in other._samples.items():
            self._samples.setdefault(metric, []).extend(samples)

    def names(self) -> set[str]:
        """The names of the metrics that have a sample."""
        return {metric.name for metric in self._samples}

    def text(self) -> str:
        """The answer to a scrape."""
        lines = [line for metric, samples in self._samples.items() for line in _family(metric, samples)]
        return "".join(f"{line}\n" for line in lines)


def _family(metric: Metric, samples: list[tuple[tuple[str, ...], float | Distribution]]) -> Iterator[str]:
    yield f"# HELP {metric.name} {metric.help}."
    yield f"# TYPE {metric.name} {metric.kind}"
    for values, value in samples:
        labels = tuple(zip(metric.labels, values, strict=True))
        if isinstance(value, Distribution):
            yield from _histogram(metric.name, labels, value)
        else:
            yield _line(metric.name, labels, value)


def _histogram(name: str, labels: tuple[tuple[str, str], ...], value: Distribution) -> Iterator[str]:
    below = 0
    for bound, count in zip((*map(str, value.bounds), "+Inf"), value.counts, strict=True):
        below += count
        yield _line(f"{name}_bucket", (*labels, ("le", bound)), below)
    yield _line(f"{name}_sum", labels, value.total)
    yield _line(f"{name}_count", labels, below)


def _line(name: str, labels: tuple[tuple[str, str], ...], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(value)}"' for key, value in labels)
    return f"{name}{{{inside}}} {float(value)!r}" if inside else f"{name} {float(value)!r}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
