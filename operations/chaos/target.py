"""What a fault is done to, and what it says that it did."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from slipway.operations.chaos import processes
from slipway.operations.chaos.processes import JobProcess
from slipway.resources.home import Home
from slipway.resources.trainings.facts import TrainingFacts
from slipway.resources.trainings.job import job_name

Choice = TypeVar("Choice")


class RunningTraining(Protocol):
    """Any target: a training that makes steps."""

    @property
    def facts(self) -> TrainingFacts: ...


@dataclass(frozen=True)
class JobTarget:
    """A running training of an embedded instance."""

    facts: TrainingFacts
    home: Home

    @property
    def processes(self) -> list[JobProcess]:
        return processes.of_job(job_name(self.facts.id, self.facts.incarnation), self.home.jobs)

    def running(self, *modules: str) -> list[JobProcess]:
        """Its processes that run one of these modules."""
        return processes.running(self.processes, *modules)


@dataclass(frozen=True)
class Done:
    """What was done."""

    what: str
    """A sentence."""
    node: str = ""
    goes_on: Callable[[threading.Event], None] | None = None
    """What is still to be done, in a thread of its own; it ends by itself, or when the event is set, and leaves nothing
    stopped."""


Act = Callable[[JobTarget, float], Done | None]
"""Do a fault to the part of the target that a number from 0 to 1 chooses; None where there is none."""


def chosen(choices: Sequence[Choice], draw: float) -> Choice | None:
    return choices[int(draw * len(choices))] if choices else None


def send(pids: Iterable[int], number: signal.Signals) -> bool:
    """Send a signal to those that are there; whether there was one."""
    sent = False
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            sent = True
    return sent


def named(process: JobProcess) -> str:
    return f"{process.module} ({process.pid})" + (f" on {process.node}" if process.node else "")
