"""The local launcher: jobs on the embedded fleet of this machine, detached from whoever submits them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from resources.fleet.embedded import EmbeddedFleet
from resources.launcher import document
from resources.launcher.commands import keeper_environment
from resources.launcher.folder import Ending, JobFolder, Order
from resources.launcher.protocol import Job, State, Status, Unavailable


@dataclass(frozen=True)
class LocalLauncher:
    """Implements `protocol.Launcher`. Job objects are the folders ``<folder>/<job name>/``."""

    folder: Path
    code: Path
    """Where the ranks import their module from: the root of the repository."""
    fleet: EmbeddedFleet

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the one of that name.

        A crash on the way leaves a pending job, which the next submit of the same starts.
        """
        folder = JobFolder.named(job.name, self.folder)
        document.must_be_possible(job, self.fleet.names)
        with _reachable(job.name):
            folder.accept(Order(job, self.fleet.folder.resolve(), self._node_cores()), _chosen(job))
            if not folder.begun():
                self._start_keeper(folder)

    def poll(self, name: str) -> Status:
        with _reachable(name):
            return JobFolder.named(name, self.folder).status()

    def cancel(self, name: str, grace_seconds: float) -> None:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            if not folder.status().state.live:
                return
            folder.ask_to_stop(grace_seconds)
            if not folder.begun():
                _end_unstarted(folder)

    def release(self, name: str) -> bool:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            if not folder.status().state.terminal:
                return False
            folder.remove()
            return True

    def logs(self, name: str, tail_bytes: int = 65_536) -> dict[str, str]:
        folder = JobFolder.named(name, self.folder)
        with _reachable(name):
            if folder.status().state is State.MISSING:
                return {}
            return {node: _tail(folder.log(node), tail_bytes) for node in folder.order().job.nodes}

    def _node_cores(self) -> int:
        """An embedded node's share of this machine's cores."""
        return max(1, len(os.sched_getaffinity(0)) // len(self.fleet.names))

    def _start_keeper(self, folder: JobFolder) -> None:
        """Return when the job has a keeper: the one started here, or one that was faster."""
        log = folder.path / "keeper.log"
        with log.open("ab") as output:
            code = subprocess.call(
                [sys.executable, "-m", "resources.launcher.keeper", str(folder.path)],
                cwd=folder.path,
                env=keeper_environment(self.code.resolve(), os.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if code != 0:
            raise Unavailable(f"job {folder.path.name}: its keeper did not start: exit code {code}, see {log}")


def _chosen(job: Job) -> tuple[str, ...]:
    """The nodes that the job takes: those that hold its data, then others."""
    by_preference = sorted(job.nodes, key=lambda node: node not in job.prefer)
    taken = by_preference[: job.size or len(by_preference)]
    return tuple(node for node in job.nodes if node in taken)


def _end_unstarted(folder: JobFolder) -> None:
    """End a job without a keeper; one that is just starting holds the lock and finds the request itself."""
    lock = folder.lock()
    if lock is None:
        return
    try:
        if not folder.begun():
            folder.end(Ending(State.STOPPED, "cancelled before it was started"))
    finally:
        os.close(lock)


def _tail(path: Path, size: int) -> str:
    """The last `size` bytes of a file as text; nothing when it is not there yet."""
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
