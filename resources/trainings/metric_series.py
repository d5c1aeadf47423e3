"""Metric series: curves of a training's metrics from its ledger, in bounded memory.

A ledger of a million steps has hundreds of megabytes. Its steps are folded into at most `MOST` buckets of equal width,
each with the means of its metrics and the lowest and highest loss; when there are more, neighbours are merged. A step
that a later incarnation repeats replaces the steps that were rolled back. The position in the ledger and the result are
stored beside the training's records in curves.json. The file is only a cache; if it is damaged, outdated or missing,
the ledger is read again.

`read_sample` serves callers that need a sum and no curve: it reads the beginning and the end of a ledger, and small
pieces at equal distances in between. A ledger of a few megabytes is read completely.
"""

import contextlib
import functools
import itertools
import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slipway.trainer.base import atomic, codec, journal
from slipway.trainer.base.journal import JournalEvent
from slipway.trainer.record import ledger

CURVES_FILE = "curves.json"
FORMAT = "slipway.curves/1"
MOST = 1000
"""The maximum number of buckets; no screen shows more."""
FIGURES = ("loss", "learning_rate", "gradient_norm", "tokens_per_second", "samples_per_second", "mfu")
VALIDATION = "validation_loss"
MOST_OWN = 6
"""The maximum number of a script's own metrics that have a curve."""
RECENT = 64
"""The number of recent steps that determine the pace, including checkpoints and validations between them."""
MOST_MARKS = 200
"""The maximum number of incidents and of checkpoints that are marked; with more checkpoints, every other one is."""
PIECE_BYTES = 8 << 20
WORTH_KEEPING = 256 << 10
"""The number of new bytes from which the folds are stored; fewer are quickly read again."""
STEPS = "rank-0"
WHOLE_BYTES = 4 << 20
"""A ledger up to this size is read completely; of a longer one, about this many bytes are read."""
SAMPLE_BYTES = 4096
"""The size of each piece of a long ledger: several lines."""
END_BYTES = 256 << 10
"""The size of the beginning and the end of each segment of a long ledger that are read."""


@dataclass
class Curve:
    """One metric: the sum and the number of its values in each bucket."""

    total: list[float] = field(default_factory=list)
    count: list[int] = field(default_factory=list)

    @property
    def means(self) -> list[float | None]:
        """The mean of each bucket; None in a bucket without a value."""
        return [total / count if count else None for total, count in zip(self.total, self.count, strict=True)]


@dataclass(frozen=True)
class CurveMark:
    """An event at a step."""

    step: int
    kind: str
    """restart, or the cause of an incident, from `slipway.trainer.record.causes`."""
    text: str
    at: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class StagedPart:
    """The progress of a node's staging."""

    bytes: int
    total_bytes: int
    at: float
    begun_bytes: int
    begun_at: float

    @property
    def seconds_left(self) -> float | None:
        """The estimated time to the end; None before any progress."""
        passed = self.at - self.begun_at
        progressed = self.bytes - self.begun_bytes
        if passed <= 0 or progressed <= 0:
            return None
        return (self.total_bytes - self.bytes) * passed / progressed


@dataclass
class CurveFold:
    """Everything that was read from one training's ledger."""

    offsets: dict[str, int] = field(default_factory=dict)
    """The position in each segment, in bytes."""
    width: int = 1
    """The number of steps in a bucket; bucket n begins at step n * width."""
    buckets: list[int] = field(default_factory=list)
    curves: dict[str, Curve] = field(default_factory=dict)
    lows: list[float | None] = field(default_factory=list)
    highs: list[float | None] = field(default_factory=list)
    """The lowest and the highest loss of each bucket."""
    last: dict[str, float] = field(default_factory=dict)
    """The metrics of the last step, with its `step` and `t`; empty before the first."""
    best: dict[str, float] = field(default_factory=dict)
    """`step` and `loss` of the lowest validation loss, or of the lowest training loss if there is no validation."""
    validated: dict[str, float] = field(default_factory=dict)
    """`step` and `loss` of the last validation; empty before the first."""
    recent_steps: list[int] = field(default_factory=list)
    recent_times: list[float] = field(default_factory=list)
    """The last steps of this start, and when each was completed."""
    checkpoints: list[int] = field(default_factory=list)
    marks: list[CurveMark] = field(default_factory=list)
    staged: dict[str, StagedPart] = field(default_factory=dict)
    """The staging progress of each node in this start."""
    started: str = ""
    """The token of the start whose steps were read last."""
    bound: str = field(default="", metadata={codec.KEY: "recommendation"})
    """What limits the speed of the steps, and what to do about it; empty before it is known."""
    datasets: dict[str, dict[str, float]] = field(default_factory=dict)
    """The tokens and passes read of each dataset of a mix; empty for a training on one dataset."""

    @property
    def pace(self) -> float | None:
        """Seconds per step, including everything in between; None before there are two steps."""
        steps = self.recent_steps
        times = self.recent_times
        if len(steps) < 2 or steps[-1] <= steps[0]:
            return None
        return (times[-1] - times[0]) / (steps[-1] - steps[0])

    @property
    def steps(self) -> list[int]:
        """The last step of each bucket, where the bucket is drawn."""
        ends = [(bucket + 1) * self.width - 1 for bucket in self.buckets]
        return [min(end, int(self.last.get("step", end))) for end in ends]

    def means(self, name: str) -> list[float | None]:
        """The means of a metric by bucket; empty if no step has the metric."""
        return self.curves[name].means if name in self.curves else []

    def add(self, events: Iterable[JournalEvent], token: str, writer: str) -> None:
        """Fold in the next events of one segment: that of `writer` with `token`."""
        for event in events:
            match event["event"]:
                case "step" if writer == STEPS:
                    self.started = token
                    self._add_step(event)
                case "validated" if writer == STEPS:
                    self._add_validation(event)
                case "committed":
                    self._add_checkpoint(int(event["step"]))
                case "started" if writer == STEPS:
                    self._add_start(event)
                case "incident":
                    step = int(event.get("step") or self.last.get("step", 0))
                    self._mark(step, str(event.get("kind", "incident")), str(event.get("cause", "")), event["t"])
                case "bound":
                    self.bound = str(event.get("recommendation", ""))
                case "mixed":
                    self.datasets = event["datasets"]
                case "staged":
                    self._add_staging(event)

    def _add_step(self, event: JournalEvent) -> None:
        step = int(event["step"])
        own = event.get("figures", {})
        figures = {name: event[name] for name in FIGURES if name in event} | dict(list(own.items())[:MOST_OWN])
        values = {name: float(value) for name, value in figures.items() if _is_finite(value)}
        self._reach(step)
        for name, value in values.items():
            self._add_value(name, value)
        loss = values.get("loss")
        if loss is not None:
            low = self.lows[-1]
            high = self.highs[-1]
            self.lows[-1] = loss if low is None else min(low, loss)
            self.highs[-1] = loss if high is None else max(high, loss)
            if not self.validated and loss <= self.best.get("loss", math.inf):
                self.best = {"step": step, "loss": loss}
        self.last = {**values, "step": step, "t": float(event["t"])}
        if _is_finite(event.get("seconds")):
            self.last["seconds"] = float(event["seconds"])
        if self.recent_steps and self.recent_steps[-1] >= step:
            self.recent_steps = []
            self.recent_times = []
        self.recent_steps = [*self.recent_steps[1 - RECENT :], step]
        self.recent_times = [*self.recent_times[1 - RECENT :], float(event["t"])]

    def _add_validation(self, event: JournalEvent) -> None:
        if not _is_finite(event.get("loss")):
            return
        step = int(event["step"])
        loss = float(event["loss"])
        if not self.buckets or self.buckets[-1] < step // self.width:
            self._reach(step)
        self._add_value(VALIDATION, loss)
        if not self.validated or loss < self.best["loss"]:
            self.best = {"step": step, "loss": loss}
        self.validated = {"step": step, "loss": loss}

    def _reach(self, step: int) -> None:
        """Make the bucket of this step the last one. Later buckets were rolled back, and are dropped."""
        bucket = step // self.width
        while self.buckets and self.buckets[-1] > bucket:
            for parallel in (self.buckets, self.lows, self.highs):
                parallel.pop()
            for curve in self.curves.values():
                curve.total.pop()
                curve.count.pop()
        if self.buckets and self.buckets[-1] == bucket:
            return
        self.buckets.append(bucket)
        self.lows.append(None)
        self.highs.append(None)
        for curve in self.curves.values():
            curve.total.append(0.0)
            curve.count.append(0)
        if len(self.buckets) > MOST:
            self._halve()

    def _halve(self) -> None:
        """Merge pairs of neighbouring buckets."""
        self.width *= 2
        numbers = [bucket // 2 for bucket in self.buckets]
        first = [index for index, number in enumerate(numbers) if index == 0 or numbers[index - 1] != number]
        spans = list(zip(first, [*first[1:], len(numbers)], strict=True))
        self.buckets = [numbers[begin] for begin, _ in spans]
        self.lows = [_least(self.lows[begin:end]) for begin, end in spans]
        self.highs = [_most(self.highs[begin:end]) for begin, end in spans]
        for curve in self.curves.values():
            curve.total = [math.fsum(curve.total[begin:end]) for begin, end in spans]
            curve.count = [sum(curve.count[begin:end]) for begin, end in spans]

    def _add_value(self, name: str, value: float) -> None:
        if name not in self.curves:
            self.curves[name] = Curve([0.0] * len(self.buckets), [0] * len(self.buckets))
        curve = self.curves[name]
        curve.total[-1] += value
        curve.count[-1] += 1

    def _add_checkpoint(self, step: int) -> None:
        if step not in self.checkpoints[-1:]:
            self.checkpoints = sorted({*self.checkpoints, step})
        if len(self.checkpoints) > MOST_MARKS:
            self.checkpoints = self.checkpoints[1::2]

    def _add_start(self, event: JournalEvent) -> None:
        """Start a new pace, and mark every start except the first."""
        if self.last:
            self._mark(int(self.last["step"]), "restart", f"start {event.get('incarnation', '')}".strip(), event["t"])
        self.recent_steps = []
        self.recent_times = []

    def _mark(self, step: int, kind: str, text: str, at: float) -> None:
        self.marks = [*self.marks[1 - MOST_MARKS :], CurveMark(step, kind, text.split("\n")[0][:200], float(at))]

    def _add_staging(self, event: JournalEvent) -> None:
        node = event["node"]
        done = int(event["bytes"])
        total = int(event["total_bytes"])
        at = float(event["t"])
        before = self.staged.get(node)
        begun_bytes = done
        begun_at = at
        if before is not None and before.total_bytes == total and before.bytes <= done:
            begun_bytes = before.begun_bytes
            begun_at = before.begun_at
        self.staged[node] = StagedPart(done, total, at, begun_bytes, begun_at)


def stored_curves(folder: Path) -> CurveFold:
    """The stored folds of the training in `folder`; empty if there are none."""
    with contextlib.suppress(OSError, ValueError):
        return codec.read(folder / CURVES_FILE, CurveFold, FORMAT)
    return CurveFold()


def read_on(folder: Path, fold: CurveFold) -> int:
    """Fold in what is new in the training's ledger; returns the number of new bytes. Raises Unreadable."""
    new = 0
    for path in ledger.segments(folder):
        offset = fold.offsets.get(path.name, 0)
        size = path.stat().st_size
        while offset < size:
            piece = journal.read(path, offset, PIECE_BYTES)
            if piece.offset == offset:
                break
            new += piece.offset - offset
            offset = fold.offsets[path.name] = piece.offset
            incarnation, generation, writer = path.name.removesuffix(".jsonl").split(".", 2)
            fold.add(piece.events, f"{incarnation}.{generation}", writer)
    return new


def keep(folder: Path, fold: CurveFold) -> None:
    """Store the folds for the next reader. Raises OSError."""
    atomic.replace(folder / CURVES_FILE, codec.encode(fold, FORMAT), lasting=False)


@dataclass(frozen=True)
class LedgerSample:
    """Events of a ledger: all of a short ledger, a sample of a long one."""

    events: tuple[JournalEvent, ...]
    """The events by segment and position. They include the first and the last of each segment."""

    @functools.cached_property
    def steps(self) -> list[JournalEvent]:
        """The step events, by step; for a repeated step, the event of the later incarnation."""
        by_step = {event["step"]: event for event in self.events if event["event"] == "step"}
        return [by_step[step] for step in sorted(by_step)]

    @property
    def seconds(self) -> float:
        """The seconds from the first event to the last; 0 without events."""
        times = [float(event["t"]) for event in self.events]
        return max(times) - min(times) if times else 0.0

    @property
    def bound(self) -> str:
        """What limits the speed of the steps, and what to do about it; "" before it is known."""
        return next((str(event["recommendation"]) for event in reversed(self.events) if event["event"] == "bound"), "")

    @property
    def staging(self) -> str:
        """How a node last staged the snapshot, and the sizes that led to this choice; "" if unknown."""
        messages = [f"{event['kind']}: {event['why']}" for event in self.events if event["event"] == "staging"]
        return messages[-1] if messages else ""

    @property
    def datasets(self) -> dict[str, dict[str, float]]:
        """The tokens and passes read of each dataset of a mix, as last reported; empty for a single dataset."""
        return next((dict(event["datasets"]) for event in reversed(self.events) if event["event"] == "mixed"), {})


def read_sample(folder: Path) -> LedgerSample:
    """A sample of the ledger of the training in `folder`. Raises OSError."""
    sizes = {path: path.stat().st_size for path in ledger.segments(folder)}
    is_small = sum(sizes.values()) <= WHOLE_BYTES
    if is_small:
        return LedgerSample(tuple(event for path in sizes for event in journal.read(path).events))
    total = sum(sizes.values())
    sampled = (_sampled(path, size, WHOLE_BYTES * size // total) for path, size in sizes.items())
    return LedgerSample(tuple(journal.events(itertools.chain.from_iterable(sampled))))


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _least(values: list[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: list[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _sampled(path: Path, size: int, budget: int) -> Iterator[bytes]:
    """Lines of a segment in their order: its beginning, its end, and pieces in between, about `budget` bytes in all."""
    end = max(SAMPLE_BYTES, min(END_BYTES, budget // 4))  # a small segment beside a large one is read completely
    pieces = max(1, (budget - 2 * end) // SAMPLE_BYTES)
    stride = max(SAMPLE_BYTES, (size - 2 * end) // pieces)
    between = ((at, SAMPLE_BYTES) for at in range(end, max(end, size - end - SAMPLE_BYTES), stride))
    descriptor = os.open(path, os.O_RDONLY)
    covered_to = 0
    read_to = 0
    try:
        for at, length in ((0, end), *between, (max(0, size - end), end)):
            # A piece begins and ends within a line, unless it touches the previous piece and continues there.
            begun = read_to if at <= covered_to else at
            if at + length <= begun:
                continue
            data = os.pread(descriptor, at + length - begun, begun)
            covered_to = begun + len(data)
            first = 0 if begun == read_to else data.find(b"\n") + 1
            last = data.rfind(b"\n") + 1
            yield from (line for line in data[first:last].split(b"\n") if line)
            read_to = begun + last
    finally:
        os.close(descriptor)
