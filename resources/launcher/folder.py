"""The local launcher's job object: a folder of facts, each written once, and a lock that tells who is alive.

The keeper of a job and its node processes hold the lock until the last of them has died. Liveness is read
from it and not from pids, which are used again and linger as zombies.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resources.launcher import document
from resources.launcher.protocol import Job, State, Status
from trainer import atomic

FORMAT = "slipway.local-job/1"


@dataclass(frozen=True)
class Ending:
    """How a job ended."""

    state: State
    reason: str
    lost_nodes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order:
    """What a keeper is to do: the job, the folder of the fleet that it runs on, and the cores that a node has."""

    job: Job
    fleet: Path
    node_cores: int


@dataclass(frozen=True)
class JobFolder:
    """The folder of one job. Methods raise OSError when the disk fails them."""

    path: Path

    @staticmethod
    def named(name: str, parent: Path) -> "JobFolder":
        """The folder of the job called `name`. Raises ValueError for what cannot be a name."""
        document.must_be_a_name(name)
        return JobFolder(parent.resolve() / name)

    @property
    def config(self) -> Path:
        """The file that the ranks get."""
        return self.path / "config.json"

    def log(self, node: str) -> Path:
        return self.path / "logs" / f"{node}.log"

    def accept(self, order: Order, nodes: tuple[str, ...]) -> None:
        """Make the job object, or find it made: the order, and the nodes that the job takes of those it may run on.

        Raises ValueError when it is another job's.
        """
        wanted = document.of(order.job)
        accepted = {
            "format": FORMAT,
            "job": wanted,
            "nodes": nodes,
            "fleet": str(order.fleet),
            "node_cores": order.node_cores,
            "submitted_at": time.time(),
        }
        if not atomic.create_only(self.path / "job.json", atomic.canonical_json(accepted)):
            document.must_be_the_same(wanted, self._read("job.json")["job"])

    def order(self) -> Order:
        """What to do, with the job's nodes chosen."""
        accepted = self._read("job.json")
        job = dataclasses.replace(document.job(accepted["job"]), nodes=_nodes(accepted), size=0, least=0)
        return Order(job, Path(accepted["fleet"]), accepted["node_cores"])

    def begun(self) -> bool:
        """Whether it was started, or ended without: then nothing may start it any more."""
        return (self.path / "started.json").exists() or (self.path / "exit.json").exists()

    def start(self) -> None:
        """Say that the keeper is about to start processes; the caller holds the lock."""
        atomic.replace(self.config, atomic.readable_json(self._read("job.json")["job"]["config"]))
        (self.path / "logs").mkdir(exist_ok=True)
        assert atomic.create_only(self.path / "started.json", atomic.readable_json({"at": time.time()}))

    def ask_to_stop(self, grace_seconds: float) -> None:
        """Ask the keeper to end the job. The first asking counts, or asking again and again would never end."""
        request = {"at": time.time(), "grace_seconds": grace_seconds}
        atomic.create_only(self.path / "cancel.json", atomic.readable_json(request))

    def stop_deadline(self) -> float | None:
        """When the grace of a cancelled job is over, seconds since the epoch; None when nobody cancelled."""
        request = self._read_if_there("cancel.json")
        return None if request is None else request["at"] + request["grace_seconds"]

    def end(self, ending: Ending) -> None:
        """Write how the job ended, unless that is written already."""
        document = dataclasses.asdict(ending) | {"state": ending.state.value, "at": time.time()}
        atomic.create_only(self.path / "exit.json", atomic.readable_json(document))

    def status(self) -> Status:
        """Where the job stands. A job whose keeper died is ended here: nothing can start it again."""
        accepted = self._read_if_there("job.json")
        if accepted is None:
            return Status(State.MISSING)
        started = self._read_if_there("started.json")
        ended = self._read_if_there("exit.json")
        if started and not ended and not self._held():
            self.end(Ending(State.FAILED, "its keeper died"))
            ended = self._read("exit.json")
        ended = ended or {"state": State.RUNNING if started else State.PENDING}
        return Status(
            state=State(ended["state"]),
            reason=ended.get("reason", ""),
            nodes=_nodes(accepted),
            lost_nodes=tuple(ended.get("lost_nodes", ())),
            submitted_at=accepted["submitted_at"],
            started_at=started["at"] if started else None,
            ended_at=ended.get("at"),
        )

    def remove(self) -> None:
        """Remove the folder of a job that has ended: by a rename first, so that it is never half a job."""
        going = self.path.with_name(f".{self.path.name}.{os.getpid()}.removed")
        with contextlib.suppress(FileNotFoundError):  # somebody else was faster
            self.path.rename(going)
            shutil.rmtree(going)

    def lock(self) -> int | None:
        """Become the one who may start and end the job: a descriptor to keep open, or None when another is.

        Only who finds the job not begun may ask: a question must never keep a keeper from starting.
        """
        return self._flock(fcntl.LOCK_EX)

    def owned_through(self, lock: int) -> bool:
        """Whether `lock` is still this folder's: a folder deleted by hand, even if made anew, has no such lock."""
        try:
            return os.path.samestat(os.fstat(lock), (self.path / "lock").stat())
        except FileNotFoundError:
            return False

    def _held(self) -> bool:
        descriptor = self._flock(fcntl.LOCK_SH)
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    def _flock(self, kind: int) -> int | None:
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return descriptor
        os.close(descriptor)
        return None

    def _read(self, name: str) -> Any:
        return json.loads((self.path / name).read_bytes())

    def _read_if_there(self, name: str) -> Any:
        try:
            return self._read(name)
        except FileNotFoundError:
            return None


def _nodes(accepted: Mapping[str, Any]) -> tuple[str, ...]:
    """Those that the job takes; a job object of an earlier revision has no others."""
    return tuple(accepted.get("nodes", accepted["job"]["nodes"]))
