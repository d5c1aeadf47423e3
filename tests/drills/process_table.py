"""The process table of the drills: who trains for whom, asked once or watched all along."""

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, Signals
from types import TracebackType
from typing import Self, TypeVar

from slipway.resources.fleet.protocol import NODE_VARIABLE
from slipway.resources.launchers.environment import JOB_VARIABLE

Value = TypeVar("Value")
PATIENCE_SECONDS = 240.0
SAMPLE_SECONDS = 0.2


def wait_until(condition: Callable[[], Value | None], what: str, seconds: float = PATIENCE_SECONDS) -> Value:
    """The first true value of `condition`; fails when there is none within `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain until {what}"
        time.sleep(0.1)
    return value


@dataclass(frozen=True)
class Process:
    """A live process of a job."""

    pid: int
    job: str
    node: str
    command: tuple[str, ...]

    @property
    def trains(self) -> bool:
        """Whether it is a rank: not its keeper, its node's process or torchrun's agent."""
        modules = [value for name, value in zip(self.command, self.command[1:], strict=False) if name == "-m"]
        return modules == ["slipway.trainer"]


def of_training(training: str) -> list[Process]:
    """All that is alive of the training's jobs."""
    processes = [process for pid in _pids() if (process := _process(pid)) is not None]
    return [process for process in processes if process.job.rpartition("-i")[0] == training]


def ranks(training: str) -> list[Process]:
    """The live trainers of a training, by node."""
    return sorted((process for process in of_training(training) if process.trains), key=lambda process: process.node)


def send(signal: Signals, pids: Iterable[int]) -> None:
    """Send the signal to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal)


def kill(pids: Iterable[int]) -> None:
    send(SIGKILL, pids)


@contextmanager
def stopped(processes: Sequence[Process]) -> Iterator[None]:
    """Stop the processes, so that all of the block happens while they are in the middle of their work."""
    send(SIGSTOP, [process.pid for process in processes])
    try:
        yield
    finally:
        send(SIGCONT, [process.pid for process in processes])


def command_of(pid: int) -> str:
    return " ".join(_strings(pid, "cmdline"))


class Watch:
    """Samples the trainers of one training for as long as the block runs."""

    def __init__(self, training: str) -> None:
        self._training = training
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self.samples: list[tuple[Process, ...]] = []

    @property
    def most_at_once(self) -> int:
        return max(map(len, self.samples))

    @property
    def trainers(self) -> set[Process]:
        """All that were ever seen."""
        return {process for sample in self.samples for process in sample}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.samples.append(tuple(ranks(self._training)))


def _process(pid: int) -> Process | None:
    environment = dict(entry.split("=", 1) for entry in _strings(pid, "environ") if "=" in entry)
    job = environment.get(JOB_VARIABLE)
    return Process(pid, job, environment.get(NODE_VARIABLE, ""), _strings(pid, "cmdline")) if job else None


def _strings(pid: int, name: str) -> tuple[str, ...]:
    """A list of strings in /proc; empty when the process is gone, a zombie, or another user's."""
    try:
        content = Path("/proc", str(pid), name).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ()
    return tuple(part.decode(errors="replace") for part in content.split(b"\0") if part)


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
