"""The local launcher: jobs on the embedded fleet of this machine, in processes that outlive their submitter."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from resources.fleet.embedded import EmbeddedFleet
from resources.launchers import document
from resources.launchers.local import overdue
from resources.launchers.local.environment import keeper_environment
from resources.launchers.local.folder import Ending, JobFolder, LocalOrder
from resources.launchers.protocol import Job, JobState, Status
from resources.unavailable import Unavailable

START_SECONDS = 60.0
"""What a keeper may take until it has forked: the start of Python on a busy machine."""


@dataclass(frozen=True)
class LocalLauncher:
    """Implements `resources.launchers.protocol.Launcher`. Job objects are the folders ``<folder>/<job name>/``."""

    folder: Path
    code: Path
    """The folder that the ranks import Slipway's packages from."""
    fleet: EmbeddedFleet

    def submit(self, job: Job) -> None:
        """Start the job, or adopt the one of that name.

        A crash in between leaves a pending job, which the next submit of the same job starts.
        """
        folder = JobFolder.named(job.name, self.folder)
        document.must_be_possible(job, self.fleet.names)
        with _reachable(job.name):
            folder.accept(LocalOrder(job, self.fleet.folder.resolve(), self._node_cores()), _chosen(job))
            if not folder.has_begun():
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
            if folder.status().state is JobState.MISSING:
                return {}
            return {node: _tail(folder.log(node), tail_bytes) for node in folder.order().job.nodes}

    def _node_cores(self) -> int:
        """An embedded node's share of this machine's cores."""
        return max(1, len(os.sched_getaffinity(0)) // len(self.fleet.names))

    def _start_keeper(self, folder: JobFolder) -> None:
        """Return when the job has a keeper: the one started here, or another that was faster."""
        log = folder.path / "keeper.log"
        with log.open("ab") as output:
            try:
                code = subprocess.call(
                    [sys.executable, "-m", overdue.KEEPER, str(folder.path)],
                    cwd=folder.path,
                    env=keeper_environment(self.code.resolve(), os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    timeout=START_SECONDS,
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"job {folder.path.name}: its keeper hung for {START_SECONDS:.0f} s") from None
        if code != 0:
            raise Unavailable(f"job {folder.path.name}: its keeper did not start: exit code {code}, see {log}")


def _chosen(job: Job) -> tuple[str, ...]:
    """The nodes that the job takes: first those that hold its data."""
    by_preference = sorted(job.nodes, key=lambda node: node not in job.prefer)
    taken = by_preference[: job.size or len(by_preference)]
    return tuple(node for node in job.nodes if node in taken)


def _end_unstarted(folder: JobFolder) -> None:
    """End a job that has no keeper; a keeper that is just starting holds the lock and finds the request itself."""
    lock = folder.lock()
    if lock is None:
        return
    try:
        if not folder.has_begun():
            folder.end(Ending(JobState.STOPPED, "cancelled before it was started"))
    finally:
        os.close(lock)


def _tail(path: Path, size: int) -> str:
    """The last `size` bytes of a file as text; empty when there is no file yet."""
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
