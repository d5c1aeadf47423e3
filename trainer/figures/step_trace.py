"""Step traces: of one step in so many, when each of its parts began and how long it took, for traces.

A step that is not traced costs one comparison. The parts are those of the timeline. A GPU ends them after the host has
gone on: so a step is recorded when the one after the next begins.
"""

import time
from collections.abc import Callable

from slipway.trainer.figures.timeline import Timeline, TracedStep


class StepTracer:
    """Traces the steps of one rank."""

    def __init__(self, timeline: Timeline, apart: int, record: Callable[..., None]) -> None:
        """`apart` 0: no step is traced. `record` writes an event."""
        self._timeline, self._apart, self._record = timeline, apart, record
        self._done: TracedStep | None = None
        """A step that is over, and some of whose parts may still run on the device."""

    def step_begins(self, step: int) -> None:
        """Before `step` begins: the one before it is over."""
        if not self._apart:
            return
        self._tell()
        if (before := self._timeline.traced) is not None:
            before.seconds = time.time() - before.begun
        self._done, self._timeline.traced = before, None
        if step % self._apart == 0:
            self._timeline.trace(step)

    def close(self) -> None:
        """Record the last step."""
        if self._done is not None or self._timeline.traced is not None:
            self._timeline.read()
            self.step_begins(-1)
            self._tell()

    def _tell(self) -> None:
        if (step := self._done) is not None:
            fields = {"begun": step.begun, "seconds": step.seconds, "parts": step.parts}
            self._record("step", step=step.step, **fields)
        self._done = None
