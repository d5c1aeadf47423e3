"""The job object of the local launcher: a folder of records, each written once, and a lock that shows what is alive.

The keeper of a job and its node processes hold the lock until the last of them has died. The lock shows whether they
are alive, and not a pid, which may be reused or belong to a zombie. The keeper alone holds a second lock: if that is
free and the first is not, the keeper has died and nodes are left.
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
JOB = "job.json"
STARTED = "started.json"
CANCEL = "cancel.json"
EXIT = "exit.json"
LOST = "lost"
RESTART_REQUESTS = "wanted"
BACK = "back"
LOCK = "lock"
KEEPER_LOCK = "kept"


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    state: JobState
    reason: str
    lost_nodes: tuple[str, ...] = ()
    kind: str = ""
    """The cause, from `slipway.trainer.record.causes`; "" if unknown."""


KEEPER_DIED = Ending(JobState.FAILED, "its keeper died", kind=causes.KILLED)


@dataclass(frozen=True)
class AcceptedJob:
    """job.json: the job, its fleet and its nodes."""

    job: Mapping[str, Any]
    fleet: str
    node_cores: int
    submitted_at: float
    nodes: tuple[str, ...] = ()
    """The nodes that the job uses; empty in a file of an earlier revision, whose job uses all nodes that it names."""

    @property
    def taken(self) -> tuple[str, ...]:
        """The nodes that the job uses."""
        return self.nodes or tuple(self.job["nodes"])


@dataclass(frozen=True)
class StartRecord:
    """started.json: when the keeper started the processes, in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class LeftNode:
    """lost/<node>.json: a node has died, and the job goes on without it; `at` is in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class WantedNode:
    """wanted/<node>.json: a request to start a dead node again; `at` is in seconds since the epoch."""

    at: float


@dataclass(frozen=True)
class ReturnedNode:
    """back/<node>.json: a dead node was started again; `at` is in seconds since the epoch."""

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
    """The order for a keeper: the job, the folder of its fleet, and the cores of each node."""

    job: Job
    fleet: Path
    node_cores: int


def _least(job: Job, accepted: AcceptedJob) -> int:
    """The minimum number of nodes for a job that has begun; 0 if it needs all of its nodes.

    Only supervisors can go on without a node; torchrun would need half a minute to restart with fewer nodes.
    """
    least = min(job.least_nodes, len(accepted.taken))
    return least if is_supervised(job) and least < len(accepted.taken) else 0


@dataclass(frozen=True)
class JobFolder:
    """The folder of one job. Its methods raise OSError if the disk fails."""

    path: Path

    @staticmethod
    def named(name: str, parent: Path) -> "JobFolder":
        """The folder of the job called `name`. Raises ValueError for an invalid name."""
        document.must_be_a_name(name)
        return JobFolder(parent.resolve() / name)

    @property
    def config(self) -> Path:
        """The configuration file that the ranks read."""
        return self.path / "config.json"

    def log(self, node: str) -> Path:
        return self.path / "logs" / f"{node}.log"

    def accept(self, order: LocalOrder, nodes: tuple[str, ...]) -> None:
        """Write the job object, unless it exists: the order, and the nodes that the job uses.

        Raises ValueError if the folder belongs to another job.
        """
        job_document = document.of(order.job)
        accepted = AcceptedJob(job_document, str(order.fleet), order.node_cores, time.time(), nodes)
        if not codec.create_only(self.path / JOB, accepted, FORMAT):
            document.must_be_the_same(job_document, self._accepted().job)

    def order(self) -> LocalOrder:
        """The order for the keeper, with the nodes that the job uses."""
        accepted = self._accepted()
        accepted_job = document.job(accepted.job)
        job = dataclasses.replace(accepted_job, nodes=accepted.taken, size=0, least=_least(accepted_job, accepted))
        return LocalOrder(job, Path(accepted.fleet), accepted.node_cores)

    def has_begun(self) -> bool:
        """Whether the job was started, or ended before its start. In both cases, no keeper may start it."""
        return (self.path / STARTED).exists() or (self.path / EXIT).exists()

    def start(self) -> None:
        """Record that the keeper is about to start processes. The caller must hold the lock."""
        atomic.replace(self.config, atomic.readable_json(self._accepted().job["config"]))
        (self.path / "logs").mkdir(exist_ok=True)
        assert codec.create_only(self.path / STARTED, StartRecord(time.time()))

    def ask_to_stop(self, grace_seconds: float) -> None:
        """Ask the keeper to end the job. Only the first request counts, so that later ones do not prolong the grace."""
        codec.create_only(self.path / CANCEL, CancelRequest(time.time(), grace_seconds))

    def stop_deadline(self) -> float | None:
        """When the grace period of a cancelled job ends, in seconds since the epoch; None if it is not cancelled."""
        request = codec.read_if_there(self.path / CANCEL, CancelRequest)
        return None if request is None else request.at + request.grace_seconds

    def lose(self, node: str) -> None:
        """Record that a node has died and that the job goes on without it."""
        codec.create_only(self.path / LOST / f"{node}.json", LeftNode(time.time()))

    def ask_back(self, nodes: Collection[str]) -> tuple[str, ...]:
        """Ask the keeper to restart the dead nodes among `nodes`; returns those of `nodes` that the job uses.

        Returns none for a job that needs all its nodes, since it has ended with the first dead one.
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
        """The nodes to start again."""
        folder = self.path / RESTART_REQUESTS
        if not folder.is_dir():
            return []
        return sorted(path.stem for path in folder.iterdir() if path.suffix == ".json")

    def take_back(self, node: str) -> None:
        """Record that a node was started again."""
        codec.replace(self.path / BACK / f"{node}.json", ReturnedNode(time.time()))
        for kind in (LOST, RESTART_REQUESTS):
            (self.path / kind / f"{node}.json").unlink(missing_ok=True)

    def end(self, ending: Ending) -> None:
        """Record how the job ended, unless its end is recorded already."""
        codec.create_only(self.path / EXIT, EndRecord(**vars(ending), at=time.time()))

    def status(self) -> Status:
        """The status of the job. Also records the failure of a job whose keeper has died."""
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
        """Remove the folder of an ended job. It is renamed first, so that nobody sees a partial folder."""
        going = self.path.with_name(f".{self.path.name}.{os.getpid()}.removed")
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            self.path.rename(going)
            shutil.rmtree(going)

    def lock(self) -> int | None:
        """Take the lock with which to start and end the job; returns its descriptor, or None if another process has it.

        Call it only for a job that has not begun, since an attempt may keep a keeper from starting.
        """
        return self._flock(fcntl.LOCK_EX)

    def keep(self) -> None:
        """Take the keeper's own lock. It belongs to this process only, and forked children do not inherit it."""
        fcntl.lockf(self._opened(KEEPER_LOCK), fcntl.LOCK_EX | fcntl.LOCK_NB)

    def keeper_died(self) -> bool:
        """Whether nodes of the job are left without a keeper. A keeper of an earlier revision has no own lock."""
        return (self.path / KEEPER_LOCK).exists() and self._is_locked() and not self._is_kept()

    def is_locked_by(self, lock: int) -> bool:
        """Whether `lock` is this folder's lock. It is not if the folder was deleted by hand, even if recreated."""
        try:
            return os.path.samestat(os.fstat(lock), (self.path / LOCK).stat())
        except FileNotFoundError:
            return False

    def _held_nodes(self, accepted: AcceptedJob, started: StartRecord) -> tuple[str, ...]:
        """The nodes of a running job, without dead ones if the others are enough to go on.

        A node that has just died is marked in the fleet before the keeper notices it.
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
