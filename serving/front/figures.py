"""The front's metrics in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/)."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
Labels = tuple[tuple[str, str], ...]


@dataclass
class Histogram:
    """A histogram: the number of measurements up to each bound."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.total += value


class FrontFigures:
    """The front's counters since it started."""

    def __init__(self) -> None:
        self.requests: defaultdict[Labels, int] = defaultdict(int)
        self.retried: defaultdict[Labels, int] = defaultdict(int)
        self.first: defaultdict[Labels, Histogram] = defaultdict(Histogram)
        self.durations: defaultdict[Labels, Histogram] = defaultdict(Histogram)

    def text(self, gauges: Mapping[str, tuple[str, Mapping[Labels, float]]]) -> str:
        """All metrics as text; `gauges` are the current values by name, each with its help text."""
        lines = [
            *_counter("slipway_serving_requests_total", "Requests, by result", self.requests),
            *_counter("slipway_serving_retried_total", "Requests retried after a backend failed", self.retried),
            *_histogram("slipway_serving_first_token_seconds", "Time to the first byte of an answer", self.first),
            *_histogram("slipway_serving_request_seconds", "Time to the last byte of an answer", self.durations),
        ]
        for name, (help, values) in gauges.items():
            lines += [*_head(name, help, "gauge"), *(_line(name, labels, value) for labels, value in values.items())]
        return "\n".join(lines) + "\n"


def labels(**named: str) -> Labels:
    """The labels of a metric, in their canonical order."""
    return tuple(named.items())


def _counter(name: str, help: str, values: Mapping[Labels, float]) -> Iterator[str]:
    yield from _head(name, help, "counter")
    for label_set, value in values.items():
        yield _line(name, label_set, value)


def _histogram(name: str, help: str, values: Mapping[Labels, Histogram]) -> Iterator[str]:
    yield from _head(name, help, "histogram")
    for label_set, histogram in values.items():
        below = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), histogram.counts, strict=True):
            below += count
            yield _line(f"{name}_bucket", (*label_set, ("le", bound)), below)
        yield _line(f"{name}_sum", label_set, histogram.total)
        yield _line(f"{name}_count", label_set, below)


def _head(name: str, help: str, kind: str) -> Sequence[str]:
    return [f"# HELP {name} {help}.", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels)
    if inside:
        return f"{name}{{{inside}}} {value:g}"
    return f"{name} {value:g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
