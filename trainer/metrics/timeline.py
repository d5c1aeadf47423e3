"""The timeline: the time of a step by part, measured without waiting for the device.

On a CPU the host's clock times a part. A GPU runs behind the host, so two events in the device's stream time a part.
They are read when they are past: a part that still runs when a step's figures are read counts for the next step.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

Annotation = Callable[[str], contextlib.AbstractContextManager[Any]]
"""Makes a part, given by its name, visible in a profile."""
Hook = Callable[[Any, Any], Any]
"""Takes DDP's state and a bucket of gradients; returns the future of the reduced gradients."""


@dataclass
class TracedStep:
    """A step with the begin of each of its parts."""

    step: int
    begun: float
    """Seconds since the epoch."""
    mark: Any
    """The moment of its begin, by the timeline's clock."""
    parts: list[tuple[str, float, float]] = field(default_factory=list)
    """The parts read so far: name, seconds from the step's begin to the part's begin, and seconds of the part."""
    seconds: float = 0.0


class Timeline:
    """The timeline of one rank. Parts do not nest, except for communication after `gradients_ready`."""

    def __init__(self, device: torch.device) -> None:
        self._clock: _Clock = _DeviceClock() if device.type == "cuda" else _HostClock()
        self._spans: list[tuple[str, Any, Any, TracedStep | None]] = []
        """The parts that are not read yet: name, begin, end, and the step if it is traced."""
        self.traced: TracedStep | None = None
        """The step that is traced now."""
        self._ready: Any = None
        """The moment of the last `gradients_ready` in this part."""
        self.annotation: Annotation | None = None
        self.section = ""
        """The host's present part, empty between parts; any thread may read it."""
        self.entered = 0
        """The number of parts that have begun; any thread may read it."""

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time this context as the part `name` of the step: data, forward, backward, optimizer, ..."""
        begun = self._clock.mark()
        self._ready = None  # the part before may have ended with an error
        self.section = name
        self.entered += 1
        with self.annotation(name) if self.annotation else contextlib.nullcontext():
            yield
        ended = self._clock.mark()
        self.section = ""
        if self._ready is not None:
            self._spans.append(("communication", self._ready, ended, self.traced))
            ended = self._ready
            self._ready = None
        self._spans.append((name, begun, ended, self.traced))

    def trace(self, step: int) -> None:
        """Record the begin of the parts from now on, until `traced` is another step."""
        self.traced = TracedStep(step, time.time(), self._clock.mark())

    @contextlib.contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """The context of work of the host that is no part of a step, and is not timed."""
        self.section = name
        yield
        self.section = ""

    def gradients_ready(self) -> None:
        """Count the rest of the current part as communication, unless this is called again in it.

        DDP hands over buckets of gradients one by one; after the last bucket the rank computes nothing, and waits for
        the others. So the wait for the slowest rank counts, and communication that overlaps with computing does not.
        """
        self._ready = self._clock.mark()
        self.section = "communication"

    def timed_hook(self, hook: Hook) -> Hook:
        """A communication hook of DDP that calls `gradients_ready` and then `hook`."""

        @functools.wraps(hook)
        def timed(state: Any, bucket: Any) -> Any:
            self.gradients_ready()
            return hook(state, bucket)

        return timed

    def read(self) -> dict[str, float]:
        """Seconds by part, of the parts that have ended since the last call."""
        past = [self._clock.is_past(ended) for _, _, ended, _ in self._spans]
        seconds: dict[str, float] = {}
        for is_past, (name, begun, ended, traced) in zip(past, self._spans, strict=True):
            if is_past:
                spent = self._clock.seconds(begun, ended)
                seconds[name] = seconds.get(name, 0.0) + spent
                if traced is not None:
                    traced.parts.append((name, self._clock.seconds(traced.mark, begun), spent))
        self._spans = [span for is_past, span in zip(past, self._spans, strict=True) if not is_past]
        return seconds


class _Clock(Protocol):
    """Marks moments, and measures the seconds between two of them."""

    def mark(self) -> Any: ...
    def is_past(self, mark: Any) -> bool: ...
    def seconds(self, begun: Any, ended: Any) -> float: ...


class _HostClock:
    """Marks are readings of the host's monotonic clock."""

    def mark(self) -> float:
        return time.perf_counter()

    def is_past(self, mark: float) -> bool:
        return True

    def seconds(self, begun: float, ended: float) -> float:
        return ended - begun


class _DeviceClock:
    """Marks are events in the current stream of the device."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def is_past(self, mark: torch.cuda.Event) -> bool:
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def seconds(self, begun: torch.cuda.Event, ended: torch.cuda.Event) -> float:
        return float(begun.elapsed_time(ended)) / 1e3


class StepTracer:
    """Traces the steps of one rank."""

    def __init__(self, timeline: Timeline, apart: int, record: Callable[..., None]) -> None:
        """Every `apart`-th step is traced; none if 0. `record` writes an event."""
        self._timeline = timeline
        self._apart = apart
        self._record = record
        self._done: TracedStep | None = None
        """The last traced step; some of its parts may still run on the device."""

    def step_begins(self, step: int) -> None:
        """Called before `step` begins, when the one before it is over."""
        if not self._apart:
            return
        self._tell()
        before = self._timeline.traced
        if before is not None:
            before.seconds = time.time() - before.begun
        self._done = before
        self._timeline.traced = None
        if step % self._apart == 0:
            self._timeline.trace(step)

    def close(self) -> None:
        """Record the last step."""
        if self._done is not None or self._timeline.traced is not None:
            self._timeline.read()
            self.step_begins(-1)
            self._tell()

    def _tell(self) -> None:
        step = self._done
        if step is not None:
            self._record("step", step=step.step, begun=step.begun, seconds=step.seconds, parts=step.parts)
        self._done = None
