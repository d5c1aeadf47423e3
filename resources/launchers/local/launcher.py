"""The local launcher: jobs on the embedded fleet of this machine, in processes that outlive their submitter."""

import contextlib
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.errors import Unavailable
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.launchers import document
from slipway.resources.launchers.local import local_process, overdue
from slipway.resources.launchers.local.folder import Ending, JobFolder, LocalOrder
from slipway.resources.launchers.local.warm_starts import WarmStarts
from slipway.resources.launchers.protocol import Job, JobState, Status


@dataclass(frozen=True)
class LocalLauncher:
    """Implements `slipway.resources.launchers.protocol.Launcher`. Job objects are the folders ``<folder>/<job
    name>/``."""

    folder: Path
    code: Path
    """The folder from which the ranks import Slipway's packages."""
    fleet: EmbeddedFleet
    warm_starts: WarmStarts = field(default_factory=WarmStarts, compare=False, repr=False)

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the job with its name.

        A crash in between leaves a pending job, which the next call for the same job starts.
        """
        folder = JobFolder.named(job.name, self.folder)
        document.must_be_possible(job, self.fleet.names)
        with _reachable(job.name):
            order = LocalOrder(job, self.fleet.folder.resolve(), self._node_cores())
            folder.accept(order, _chosen(job))
            if not folder.has_begun() and not self.warm_starts.start(folder, order, self.code.resolve()):
                self._start_keeper(folder)

    def poll(self, name: str) -> Status:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            overdue.settle(folder)
            return folder.status()

    def cancel(self, name: str, grace_seconds: float) -> None:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            overdue.settle(folder)
            if not folder.status().state.live:
                return
            folder.ask_to_stop(grace_seconds)
            if not folder.has_begun():
                _end_unstarted(folder)

    def take_back(self, name: str, nodes: Collection[str]) -> tuple[str, ...]:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            return folder.ask_back(nodes) if folder.status().state is JobState.RUNNING else ()

    def release(self, name: str) -> bool:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            if not folder.status().state.terminal:
                return False
            folder.remove()
            return True

    def rest(self) -> None:
        self.warm_starts.end()

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            if folder.status().state is JobState.MISSING:
                return {}
            return {node: _tail(folder.log(node), tail_bytes) for node in folder.order().job.nodes}

    def _node_cores(self) -> int:
        """An embedded node's share of this machine's cores."""
        return max(1, len(os.sched_getaffinity(0)) // len(self.fleet.names))

    def _start_keeper(self, folder: JobFolder) -> None:
        """Return once the job has a keeper: the one started here, or another that was faster."""
        name = folder.path.name
        keeper = [overdue.KEEPER, str(folder.path)]
        local_process.start_detached(
            keeper, folder.path / "keeper.log", self.code.resolve(), os.environ, f"job {name}: its keeper"
        )


def _chosen(job: Job) -> tuple[str, ...]:
    """The nodes that the job uses; nodes that hold its data come first."""
    by_preference = sorted(job.nodes, key=lambda node: node not in job.prefer)
    taken = by_preference[: job.size or len(by_preference)]
    return tuple(node for node in job.nodes if node in taken)


def _end_unstarted(folder: JobFolder) -> None:
    """End a job without a keeper. A keeper that is just starting holds the lock, and finds the request itself."""
    lock = folder.lock()
    if lock is None:
        return
    try:
        if not folder.has_begun():
            folder.end(Ending(JobState.STOPPED, "cancelled before it was started"))
    finally:
        os.close(lock)


def _tail(path: Path, size: int) -> str:
    """The last `size` bytes of a file as text; "" if the file does not exist yet."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


@contextlib.contextmanager
def _reachable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"job {name}: {error}") from error
