"""The timeline: where the time of a step went, by part, without ever waiting for the device.

On a CPU a part is timed by the host's clock. A GPU runs behind the host, so that there a part is timed by two events
in the device's stream, read when they are past: what is still under way when a step's figures are read counts for
the next step.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch

Annotation = Callable[[str], contextlib.AbstractContextManager[Any]]
"""What makes a part visible in a profile, by the part's name."""
Hook = Callable[[Any, Any], Any]
"""From DDP's state and a bucket of gradients to the future of the reduced ones."""


class Timeline:
    """One rank's. Parts do not nest, but for what follows `gradients_ready`."""

    def __init__(self, device: torch.device) -> None:
        self._clock: _Clock = _DeviceClock() if device.type == "cuda" else _HostClock()
        self._spans: list[tuple[str, Any, Any]] = []
        self._ready: Any = None
        self.annotation: Annotation | None = None

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """What runs in here is the part `name` of the step: data, forward, backward, optimiser, ..."""
        begun = self._clock.mark()
        with self.annotation(name) if self.annotation else contextlib.nullcontext():
            yield
        ended = self._clock.mark()
        if self._ready is not None:
            self._spans.append(("communication", self._ready, ended))
            ended, self._ready = self._ready, None
        self._spans.append((name, begun, ended))

    def gradients_ready(self) -> None:
        """All that is left of the part under way is waiting for other ranks, unless this is called once more in it.

        Called whenever a bucket of gradients is handed over to be reduced: behind the last one nothing is computed.
        What overlaps with computing is thus not counted: this is the exposed time of communication, and the time that
        the slowest rank lets this one wait is in it.
        """
        self._ready = self._clock.mark()

    def reducing(self, hook: Hook) -> Hook:
        """A communication hook of DDP that does what `hook` does, and tells of the gradients that it is given."""

        @functools.wraps(hook)
        def timed(state: Any, bucket: Any) -> Any:
            self.gradients_ready()
            return hook(state, bucket)

        return timed

    def read(self) -> dict[str, float]:
        """Seconds by part, of all that is past and was not read before."""
        past = [self._clock.is_past(ended) for _, _, ended in self._spans]
        seconds: dict[str, float] = {}
        for is_past, (name, begun, ended) in zip(past, self._spans, strict=True):
            if is_past:
                seconds[name] = seconds.get(name, 0.0) + self._clock.seconds(begun, ended)
        self._spans = [span for is_past, span in zip(past, self._spans, strict=True) if not is_past]
        return seconds


class _Clock(Protocol):
    def mark(self) -> Any: ...
    def is_past(self, mark: Any) -> bool: ...
    def seconds(self, begun: Any, ended: Any) -> float: ...


class _HostClock:
    def mark(self) -> float:
        return time.perf_counter()

    def is_past(self, mark: float) -> bool:
        return True

    def seconds(self, begun: float, ended: float) -> float:
        return ended - begun


class _DeviceClock:
    """Marks are events in the stream that is current where they are made."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def is_past(self, mark: torch.cuda.Event) -> bool:
        return bool(mark.query())  # type: ignore[no-untyped-call]

    def seconds(self, begun: torch.cuda.Event, ended: torch.cuda.Event) -> float:
        return float(begun.elapsed_time(ended)) / 1e3
