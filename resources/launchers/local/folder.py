"""The job object of the local launcher: a folder of facts, each written once, and a lock that shows who lives.

The keeper of a job and its node processes hold the lock until the last of them has died. The lock, and no pid, tells
whether they live: a pid may be used again, or belong to a zombie. A second lock is the keeper's alone: when it is free
and the first one is not, the keeper has died and nodes are left.
"""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipway.resources.fleet import embedded
from slipway.resources.launchers import document
from slipway.resources.launchers.protocol import Job, JobState, Status
from slipway.resources.launchers.torchrun import is_supervised
from slipway.trainer.base import atomic, codec
from slipway.trainer.record import causes

FORMAT = "slipway.local-job/1"
JOB, STARTED, CANCEL, EXIT = "job.json", "started.json", "cancel.json", "exit.json"
LOST, RESTART_REQUESTS, BACK = "lost", "wanted", "back"
LOCK, KEEPER_LOCK = "lock", "kept"


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    state: JobState
    reason: str
    lost_nodes: tuple[str, ...] = ()
    kind: str = ""
    """Of `slipway.trainer.record.causes`; empty where it is not known."""


KEEPER_DIED = Ending(JobState.FAILED, "its keeper died", kind=causes.KILLED)


@dataclass(frozen=True)
class AcceptedJob:
    """job.json: the job and its place."""

    job: Mapping[str, Any]
    fleet: str
    node_cores: int
    submitted_at: float
    nodes: tuple[str, ...] = ()
    """The nodes that the job takes; a file of an earlier revision has none: its job takes all nodes that it names."""

    @property
    def taken(self) -> tuple[str, ...]:
        """The nodes that the job takes."""
        return self.nodes or tuple(self.job["nodes"])


@dataclass(frozen=True)
class StartRecord:
    """started.json: when the keeper started the processes, in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class LeftNode:
    """lost/<node>.json: a node died, and the job goes on without it; `at` is in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class WantedNode:
    """wanted/<node>.json: a node that died is to be started anew; `at` is in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class ReturnedNode:
    """back/<node>.json: a node that had died was started anew; `at` is in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class CancelRequest:
    """cancel.json: the first request to stop; `at` is in seconds since the epoch."""

    at: float
    grace_seconds: float


@dataclass(frozen=True)
class EndRecord(Ending):
    """exit.json: how and when the job ended; `at` is in seconds since the epoch."""

    at: float = field(kw_only=True)


@dataclass(frozen=True)
class LocalOrder:
    """What a keeper runs: the job, the folder of its fleet, and the cores of each node."""

    job: Job
    fleet: Path
    node_cores: int


def _least(job: Job, accepted: AcceptedJob) -> int:
    """How many of its nodes are enough for a job that has begun; 0 where it needs all of them.

    Supervisors go on without a node; torchrun would start a job that may have fewer nodes half a minute later.
    """
    least = min(job.least_nodes, len(accepted.taken))
    return least if is_supervised(job) and least < len(accepted.taken) else 0


@dataclass(frozen=True)
class JobFolder:
    """The folder of one job. Its methods raise OSError when the disk fails."""

    path: Path

    @staticmethod
    def named(name: str, parent: Path) -> "JobFolder":
        """The folder of the job called `name`. Raises ValueError for a text that cannot be a name."""
        document.must_be_a_name(name)
        return JobFolder(parent.resolve() / name)

    @property
    def config(self) -> Path:
        """The file that the ranks read."""
        return self.path / "config.json"

    def log(self, node: str) -> Path:
        return self.path / "logs" / f"{node}.log"

    def accept(self, order: LocalOrder, nodes: tuple[str, ...]) -> None:
        """Write the job object, unless it is there: the order, and the nodes that the job takes.

        Raises ValueError when the job object is another job's.
        """
        job_document = document.of(order.job)
        accepted = AcceptedJob(job_document, str(order.fleet), order.node_cores, time.time(), nodes)
        if not codec.create_only(self.path / JOB, accepted, FORMAT):
            document.must_be_the_same(job_document, self._accepted().job)

    def order(self) -> LocalOrder:
        """What the keeper runs, on the nodes that the job takes."""
        accepted = self._accepted()
        accepted_job = document.job(accepted.job)
        job = dataclasses.replace(accepted_job, nodes=accepted.taken, size=0, least=_least(accepted_job, accepted))
        return LocalOrder(job, Path(accepted.fleet), accepted.node_cores)

    def has_begun(self) -> bool:
        """Whether the job was started, or ended before that: then no keeper may start it."""
        return (self.path / STARTED).exists() or (self.path / EXIT).exists()

    def start(self) -> None:
        """Record that the keeper is about to start processes; the caller holds the lock."""
        atomic.replace(self.config, atomic.readable_json(self._accepted().job["config"]))
        (self.path / "logs").mkdir(exist_ok=True)
        assert codec.create_only(self.path / STARTED, StartRecord(time.time()))

    def ask_to_stop(self, grace_seconds: float) -> None:
        """Ask the keeper to end the job. The first request counts: a later one would prolong the grace."""
        codec.create_only(self.path / CANCEL, CancelRequest(time.time(), grace_seconds))

    def stop_deadline(self) -> float | None:
        """When the grace of a cancelled job is over, seconds since the epoch; None for a job that is not cancelled."""
        request = codec.read_if_there(self.path / CANCEL, CancelRequest)
        return None if request is None else request.at + request.grace_seconds

    def lose(self, node: str) -> None:
        """Record that a node died and that the job goes on without it."""
        codec.create_only(self.path / LOST / f"{node}.json", LeftNode(time.time()))

    def ask_back(self, nodes: Collection[str]) -> tuple[str, ...]:
        """Ask the keeper to start those of these nodes anew that died; which of them the job has, or is about to.

        None for a job that needs all its nodes: it has ended with the first that died.
        """
        accepted = self._accepted()
        if not _least(document.job(accepted.job), accepted):
            return ()
        requested = tuple(node for node in accepted.taken if node in nodes)
        for node in requested:
            if (self.path / LOST / f"{node}.json").exists():
                codec.create_only(self.path / RESTART_REQUESTS / f"{node}.json", WantedNode(time.time()))
        return requested

    def wanted_back(self) -> list[str]:
        """The nodes that are to be started anew."""
        folder = self.path / RESTART_REQUESTS
        return sorted(path.stem for path in folder.iterdir() if path.suffix == ".json") if folder.is_dir() else []

    def take_back(self, node: str) -> None:
        """Record that a node was started anew."""
        codec.replace(self.path / BACK / f"{node}.json", ReturnedNode(time.time()))
        for kind in (LOST, RESTART_REQUESTS):
            (self.path / kind / f"{node}.json").unlink(missing_ok=True)

    def end(self, ending: Ending) -> None:
        """Record how the job ended, unless that is recorded already."""
        codec.create_only(self.path / EXIT, EndRecord(**vars(ending), at=time.time()))

    def status(self) -> Status:
        """Where the job stands. A job whose keeper died is recorded as failed here: nothing can start it again."""
        accepted = codec.read_if_there(self.path / JOB, AcceptedJob, FORMAT)
        if accepted is None:
            return Status(JobState.MISSING)
        started = codec.read_if_there(self.path / STARTED, StartRecord)
        ended = codec.read_if_there(self.path / EXIT, EndRecord)
        if started and not ended and not self._is_locked():
            self.end(KEEPER_DIED)
            ended = codec.read(self.path / EXIT, EndRecord)
        present = ended or Ending(JobState.RUNNING if started else JobState.PENDING, "")
        return Status(
            state=present.state,
            reason=present.reason,
            nodes=self._held_nodes(accepted, started) if started and not ended else accepted.taken,
            lost_nodes=present.lost_nodes,
            submitted_at=accepted.submitted_at,
            started_at=started.at if started else None,
            ended_at=ended.at if ended else None,
            kind=present.kind,
        )

    def remove(self) -> None:
        """Remove the folder of a job that has ended; a rename comes first, so that no half of a job is ever seen."""
        going = self.path.with_name(f".{self.path.name}.{os.getpid()}.removed")
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            self.path.rename(going)
            shutil.rmtree(going)

    def lock(self) -> int | None:
        """Take the right to start and end the job: a descriptor to keep open, or None when another process holds it.

        Call it only for a job that has not begun: an attempt may keep a keeper from starting.
        """
        return self._flock(fcntl.LOCK_EX)

    def keep(self) -> None:
        """Take the keeper's own lock, which is that of this process alone: also a child that is forked has it not."""
        fcntl.lockf(self._opened(KEEPER_LOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)

    def keeper_died(self) -> bool:
        """Whether nodes of the job are left, and no keeper. One of an earlier revision has no lock of its own."""
        return (self.path / KEEPER_LOCK).exists() and self._is_locked() and not self._is_kept()

    def is_locked_by(self, lock: int) -> bool:
        """Whether `lock` is this folder's lock; it is not when the folder was deleted by hand, even if made anew."""
        try:
            return os.path.samestat(os.fstat(lock), (self.path / LOCK).stat())
        except FileNotFoundError:
            return False

    def _held_nodes(self, accepted: AcceptedJob, started: StartRecord) -> tuple[str, ...]:
        """The nodes that a running job has: without those that died, where the rest is enough to go on.

        A node that died just now has the fleet's mark before the keeper has seen it.
        """
        least = _least(document.job(accepted.job), accepted)
        if not least:
            return accepted.taken

        def died(node: str) -> bool:
            marked = embedded.lost_at(Path(accepted.fleet), node)
            back = codec.read_if_whole(self.path / BACK / f"{node}.json", ReturnedNode)
            since = max(started.at, back.at if back else 0.0)
            return (self.path / LOST / f"{node}.json").exists() or (marked is not None and marked >= since)

        live_nodes = tuple(node for node in accepted.taken if not died(node))
        return live_nodes if len(live_nodes) >= least else accepted.taken

    def _is_kept(self) -> bool:
        descriptor = self._opened(KEEPER_LOCK)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        finally:
            os.close(descriptor)
        return False

    def _is_locked(self) -> bool:
        descriptor = self._flock(fcntl.LOCK_SH)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def _opened(self, lock: str) -> int:
        return os.open(self.path / lock, os.O_RDWR | os.O_CREAT, 0o644)

    def _flock(self, kind: int) -> int | None:
        descriptor = self._opened(LOCK)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return descriptor
        os.close(descriptor)
        return None

    def _accepted(self) -> AcceptedJob:
        return codec.read(self.path / JOB, AcceptedJob, FORMAT)
