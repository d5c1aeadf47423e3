"""The faults that chaos brings about on an embedded instance, with the causes that the platform should name.

Each is done to real processes and files of one job, as a machine would do it. To add one: write a function of a
`JobTarget` and a draw that returns what it did, or None where there is nothing to do it to, and give it a line in
`FAULTS`.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from operations.chaos import processes
from operations.chaos.processes import JobProcess
from resources.fleet import embedded
from resources.trainings.facts import TrainingFacts
from resources.trainings.job import job_name
from trainer.record import causes

Choice = TypeVar("Choice")
SLOW_SECONDS = 20.0
"""How long a slow rank is slow."""


@dataclass(frozen=True)
class JobTarget:
    """A running training, and where its nodes and checkpoints are."""

    facts: TrainingFacts
    nodes: Path
    """The folder of the embedded fleet."""
    durable: Path

    @property
    def processes(self) -> list[JobProcess]:
        return processes.of_job(job_name(self.facts.id, self.facts.incarnation))


@dataclass(frozen=True)
class Done:
    """What was done."""

    what: str
    """A sentence."""
    node: str = ""
    slow: tuple[int, ...] = ()
    """The pids that are to be stopped and continued again and again for `SLOW_SECONDS`."""


@dataclass(frozen=True)
class ChaosFault:
    """One fault."""

    what: str
    """For a person: what happens."""
    kinds: tuple[str, ...]
    """The causes that name it rightly, of `trainer.record.causes`."""
    act: Callable[[JobTarget, float], Done | None]
    """Do it to the target that the number from 0 to 1 chooses; None where there is none."""


def _signalled(
    number: signal.Signals, *modules: str, node: int | None = None
) -> Callable[[JobTarget, float], Done | None]:
    """A signal to a process that runs one of these modules; `node` is the place of its node in the list of nodes."""

    def act(target: JobTarget, draw: float) -> Done | None:
        chosen = _chosen(processes.running(target.processes, *modules), draw)
        if chosen is None or not _send(chosen.pid, number):
            return None
        return Done(f"{number.name} to {_named(chosen)}", chosen.node)

    return act


def _node_killed(first: bool) -> Callable[[JobTarget, float], Done | None]:
    """A power cut on a node: on the one with rank 0, or on any."""

    def act(target: JobTarget, draw: float) -> Done | None:
        nodes = sorted({each.node for each in processes.running(target.processes, processes.NODE)})
        chosen = _chosen(nodes[:1] if first else nodes, draw)
        if chosen is None:
            return None
        embedded.kill(target.nodes, chosen)
        return Done(f"node {chosen} lost its power", chosen)

    return act


def _slowed(target: JobTarget, draw: float) -> Done | None:
    ranks = processes.running(target.processes, processes.RANK)
    chosen = _chosen(ranks if len(ranks) > 2 else [], draw)
    if chosen is None:
        return None
    return Done(f"{_named(chosen)} runs a part of the time only", chosen.node, (chosen.pid,))


def _damaged(target: JobTarget, draw: float) -> Done | None:
    """One bit of the newest checkpoint on the durable tier flips, and a rank is killed, so that it is needed."""
    if not target.facts.commits:
        return None
    folder = target.durable / target.facts.commits[-1].folder
    with contextlib.suppress(OSError):
        if file := max((each for each in folder.rglob("*") if each.is_file()), key=_size, default=None):
            _flip(file, draw)
            if killed := _signalled(signal.SIGKILL, processes.RANK)(target, draw):
                return Done(f"a bit of {file.name} in checkpoint {folder.name} flipped; {killed.what}", killed.node)
    return None


def _chosen(choices: Sequence[Choice], draw: float) -> Choice | None:
    return choices[int(draw * len(choices))] if choices else None


def _send(pid: int, number: signal.Signals) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return True
    return False


def _named(process: JobProcess) -> str:
    return f"{process.module} ({process.pid})" + (f" on {process.node}" if process.node else "")


def _size(file: Path) -> int:
    return file.stat().st_size


def _flip(file: Path, draw: float) -> None:
    with file.open("r+b") as opened:
        place = int(draw * _size(file))
        opened.seek(place)
        [byte] = opened.read(1)
        opened.seek(place)
        opened.write(bytes([byte ^ 1]))


FAULTS = {
    "rank-killed": ChaosFault("A rank gets SIGKILL.", (causes.KILLED,), _signalled(signal.SIGKILL, processes.RANK)),
    "rank-crashed": ChaosFault("A rank gets SIGSEGV.", (causes.KILLED,), _signalled(signal.SIGSEGV, processes.RANK)),
    "rank-stopped": ChaosFault(
        "A rank gets SIGSTOP: it hangs.", (causes.HUNG,), _signalled(signal.SIGSTOP, processes.RANK)
    ),
    "rank-slow": ChaosFault(f"A rank is slow for {SLOW_SECONDS:.0f} s.", (causes.STRAGGLER,), _slowed),
    "supervisor-killed": ChaosFault(
        "The supervisor of a node gets SIGKILL.", (causes.KILLED,), _signalled(signal.SIGKILL, processes.SUPERVISOR)
    ),
    "node-killed": ChaosFault("A node loses its power.", (causes.DISRUPTED,), _node_killed(first=False)),
    "first-node-killed": ChaosFault(
        "The node of rank 0 loses its power.", (causes.DISRUPTED,), _node_killed(first=True)
    ),
    "keeper-killed": ChaosFault(
        "The keeper of the job gets SIGKILL.", (causes.KILLED,), _signalled(signal.SIGKILL, processes.KEEPER)
    ),
    "store-killed": ChaosFault(
        "The rendezvous store gets SIGKILL.", (causes.NETWORK,), _signalled(signal.SIGKILL, processes.STORE)
    ),
    "checkpoint-damaged": ChaosFault(
        "A bit of the newest checkpoint flips, and a rank gets SIGKILL.", (causes.KILLED,), _damaged
    ),
    "node-asked": ChaosFault(
        "A node gets SIGTERM, as before a maintenance.", (causes.ASKED,), _signalled(signal.SIGTERM, processes.NODE)
    ),
}
"""By name. A fault of a job with one rank may find no target."""
