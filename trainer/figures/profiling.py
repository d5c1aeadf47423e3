"""Profiles on demand: of the steps that the recipe names, or of the next steps after a rank receives SIGUSR2.

A profile is a trace of PyTorch's profiler in the training's folder, for Perfetto or chrome://tracing. Under Nsight
Systems (``nsys profile --capture-range=cudaProfilerApi``) nsys captures the same steps instead: only one of the two
can subscribe to the GPU's events. Both show the parts of the timeline as ranges.
"""

import gzip
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from trainer.base import atomic
from trainer.config.operation import Observation
from trainer.figures.timeline import Timeline


class Profiler:
    """The profiler of one rank. Rank 0 records the recipe's steps; any rank records after a signal to it."""

    def __init__(
        self,
        observation: Observation,
        timeline: Timeline,
        folder: Path,
        name: str,
        on_recipe: bool,
        record: Callable[..., None],
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """`name`, unique to this rank and incarnation, is part of the files' names; `record` writes an event."""
        self._observation, self._timeline, self._on_recipe = observation, timeline, on_recipe
        self._folder, self._name, self._record = folder, name, record
        self._under_nsight = "NSYS_PROFILING_SESSION_ID" in environment
        self._asked = False
        self._recording: _Recording | None = None
        self._first = 0
        signal.signal(signal.SIGUSR2, self._ask)

    def step_begins(self, step: int) -> None:
        """Begin or end a recording before `step`, counted from 1, begins."""
        if self._recording and step >= self._first + self._observation.profile_steps:
            self.end(step - 1)
        due = self._asked or (self._on_recipe and step == self._observation.profile_from)
        if due and not self._recording:
            self._asked, self._first = False, step
            self._recording = _Nsight() if self._under_nsight else _Trace()
            self._timeline.annotation = self._recording.annotation
            self._recording.start()

    def end(self, last: int) -> None:
        """End a recording, if there is one, after step `last` and write it. An OSError becomes an event."""
        if not self._recording:
            return
        recording, self._recording, self._timeline.annotation = self._recording, None, None
        path = self._folder / f"{self._first:09d}-{last:09d}.{self._name}.json.gz"
        steps = {"first": self._first, "last": last}
        try:
            self._record("profiled", **steps, **recording.stop(path))
        except OSError as error:
            self._record("profile_failed", **steps, reason=str(error))

    def _ask(self, *_: object) -> None:
        self._asked = True


class _Recording(Protocol):
    """A recording of some steps."""

    def annotation(self, name: str) -> Any:
        """A context that marks a part of the timeline."""

    def start(self) -> None: ...

    def stop(self, path: Path) -> dict[str, str]:
        """End the recording and write it to `path`; returns fields for the event. Raises OSError."""


class _Trace:
    """A recording by PyTorch's profiler."""

    def __init__(self) -> None:
        gpu = [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, *gpu])
        self.annotation = torch.profiler.record_function

    def start(self) -> None:
        self._profile.start()

    def stop(self, path: Path) -> dict[str, str]:
        self._profile.stop()
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as scratch:
            raw, packed = Path(scratch) / "trace.json", Path(scratch) / "trace.json.gz"
            self._profile.export_chrome_trace(str(raw))
            _require_whole(raw)
            with open(raw, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target)
            atomic.move(packed, path)
        return {"by": "torch.profiler", "path": str(path)}


def _require_whole(trace: Path) -> None:
    """Raises OSError for a trace that breaks off: PyTorch's writer raises nothing when the disk is full."""
    size = trace.stat().st_size
    with open(trace, "rb") as file:
        file.seek(max(0, size - 16))
        if not file.read().rstrip().endswith(b"}"):
            raise OSError(
                f"the trace breaks off after {size} bytes: free space on the disk and ask for the profile again"
            )


class _Nsight:
    """A recording by Nsight Systems, under which this process runs; nsys writes the file itself."""

    def annotation(self, name: str) -> Any:
        return torch.cuda.nvtx.range(name)

    def start(self) -> None:
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]

    def stop(self, path: Path) -> dict[str, str]:
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        return {"by": "nsys"}
