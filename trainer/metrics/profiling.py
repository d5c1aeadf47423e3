"""Profiles on demand: of the steps that the recipe names, or of the next steps after a rank receives SIGUSR2.

A profile is a trace of PyTorch's profiler in the training's folder, for Perfetto or chrome://tracing. The rank writes
it to the node's temporary folder. A thread compresses it and moves it, so that no step waits for the training's folder.

Under Nsight Systems (``nsys profile --capture-range=cudaProfilerApi``) nsys captures the same steps instead, because
only one of the two can subscribe to the GPU's events. Both show the parts of the timeline as ranges.
"""

import contextlib
import functools
import gzip
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import torch

from slipway.trainer.base import atomic, scratch
from slipway.trainer.config.operation import Observation
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.record import files
from slipway.trainer.record.fence import Token
from slipway.trainer.record.recorder import RankRecorder

WRITE_SECONDS = 60.0
"""Seconds for which a rank at its end waits until its profiles are written."""
Write = Callable[[Path], dict[str, str]]
"""Writes a recording to a path; returns fields for the event. Raises OSError."""


def of_rank(
    observation: Observation, timeline: Timeline, store: Path, token: Token, rank: int, recorder: RankRecorder
) -> "Profiler":
    """The profiler of a rank: rank 0 profiles the steps that the recipe names; any rank, the steps after a signal."""
    own = functools.partial(recorder.record_own, "profiler")
    return Profiler(observation, timeline, store / files.PROFILES, f"{token}.{rank:05d}", rank == 0, own)


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
        self._observation = observation
        self._timeline = timeline
        self._on_recipe = on_recipe
        self._folder = folder
        self._name = name
        self._record = record
        self._under_nsight = "NSYS_PROFILING_SESSION_ID" in environment
        self._is_requested = False
        self._recording: _Recording | None = None
        self._first = 0
        self._writing: list[threading.Thread] = []
        signal.signal(signal.SIGUSR2, self._ask)

    def step_begins(self, step: int) -> None:
        """Begin or end a recording before `step`, counted from 1, begins."""
        if self._recording and step >= self._first + self._observation.profile_steps:
            self._stop(step - 1)
        due = self._is_requested or (self._on_recipe and step == self._observation.profile_from)
        if due and not self._recording:
            self._is_requested = False
            self._first = step
            self._recording = _Nsight() if self._under_nsight else _Trace()
            self._timeline.annotation = self._recording.annotation
            self._recording.start()

    def end(self, last: int) -> None:
        """End a recording, if there is one, after step `last`, and wait until all recordings are written."""
        self._stop(last)
        deadline = time.monotonic() + WRITE_SECONDS
        for thread in self._writing:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _stop(self, last: int) -> None:
        """End a recording, if there is one, after step `last`, and start a thread that writes it."""
        if not self._recording:
            return
        begun = time.perf_counter()
        recording = self._recording
        self._recording = None
        self._timeline.annotation = None
        path = self._folder / f"{self._first:09d}-{last:09d}.{self._name}.json.gz"
        write = recording.stop()
        fields = {"first": self._first, "last": last, "blocked_seconds": time.perf_counter() - begun}
        before = self._writing[-1] if self._writing else None
        # A daemon, so that a hung file system delays neither a step nor the end of the process.
        thread = threading.Thread(target=self._write, args=(before, write, path, fields), name="profile", daemon=True)
        self._writing = [*(writer for writer in self._writing if writer.is_alive()), thread]
        thread.start()

    def _write(self, before: threading.Thread | None, write: Write, path: Path, fields: dict[str, Any]) -> None:
        """Write a recording, after the one before it. An OSError becomes an event."""
        if before is not None:
            before.join()
        try:
            self._record("profiled", **fields, **write(path))
        except OSError as error:
            self._record("profile_failed", **fields, reason=str(error))

    def _ask(self, *_: object) -> None:
        self._is_requested = True


class _Recording(Protocol):
    """A recording of some steps."""

    def annotation(self, name: str) -> Any:
        """A context that marks a part of the timeline."""

    def start(self) -> None: ...

    def stop(self) -> Write:
        """End the recording; returns a function that writes it, in any thread."""


class _Trace:
    """A recording by PyTorch's profiler."""

    def __init__(self) -> None:
        gpu = [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
        self._profile = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, *gpu])
        self.annotation = torch.profiler.record_function

    def start(self) -> None:
        self._profile.start()

    def stop(self) -> Write:
        self._profile.stop()
        stack = contextlib.ExitStack()
        raw = stack.enter_context(scratch.folder("slipway-trace")) / "trace.json"
        self._profile.export_chrome_trace(str(raw))

        def write(path: Path) -> dict[str, str]:
            with stack:
                return _pack(raw, path)

        return write


def _pack(raw: Path, path: Path) -> dict[str, str]:
    """Compress the trace in the file `raw` to `path`. Raises OSError."""
    with open(raw, "rb") as source:
        _require_whole(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as beside:
            packed = Path(beside) / "trace.json.gz"
            with gzip.open(packed, "wb", compresslevel=1) as target:
                shutil.copyfileobj(source, target)
            atomic.move(packed, path)
    return {"by": "torch.profiler", "path": str(path)}


def _require_whole(trace: BinaryIO) -> None:
    """Raises OSError for a truncated trace: PyTorch's writer raises nothing on a full disk."""
    size = trace.seek(0, os.SEEK_END)
    trace.seek(max(0, size - 16))
    if not trace.read().rstrip().endswith(b"}"):
        raise OSError(
            f"the trace breaks off after {size} bytes: free space in the temporary folder and ask for the profile again"
        )
    trace.seek(0)


class _Nsight:
    """A recording by Nsight Systems, under which this process runs; nsys writes the file itself."""

    def annotation(self, name: str) -> Any:
        return torch.cuda.nvtx.range(name)

    def start(self) -> None:
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]

    def stop(self) -> Write:
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        return lambda _: {"by": "nsys"}
