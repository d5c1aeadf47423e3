"""Lease: one control plane decides for a home at a time, whoever has started it.

The code server whose sensors are evaluated first takes the lease, and holds it until it dies: the kernel gives it back,
however that happens. So it covers `slipway dev` and `slipway up` as well as `dagster dev` or `dg dev` over the same
home. Who comes second may look: its UI works, its sensors and schedules say who holds the lease, and at the first tick
after the holder's death it takes over.
"""

import fcntl
import json
import os
import socket
import threading
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from trainer.base import parsing, processes

FILE = "control-plane.lease"
ATTEMPTS, PAUSE_SECONDS = 5, 0.01
"""Somebody who only asks who holds the lease has the lock for a moment."""


@dataclass(frozen=True)
class Holder:
    """Who decides for a home."""

    host: str
    pid: int
    since: float
    """Seconds since the epoch."""
    command: str
    dagster: str
    """Its DAGSTER_HOME; empty where it has none."""

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        dagster = f", DAGSTER_HOME={self.dagster}" if self.dagster else ""
        return f"process {self.pid} on {self.host}, since {at} ({self.command}{dagster})"


class HomeLease:
    """The lease of one home, as this process has it or has it not."""

    def __init__(self, home: Path) -> None:
        self._home, self._path = home, home / FILE
        self._held: int | None = None
        self._taking = threading.Lock()

    def take(self) -> str | None:
        """Hold the lease from now until this process ends; else why not, naming who holds it. Raises OSError."""
        with self._taking:  # sensors are evaluated in threads
            if self._holds():
                return None
            for _ in range(ATTEMPTS):
                if self._taken():
                    return None
                time.sleep(PAUSE_SECONDS)
        return (
            f"another control plane decides for {self._home}: {self.holder() or 'one that has just ended'}; this one "
            "only shows what is, and takes over when that one has ended"
        )

    def holder(self) -> Holder | None:
        """The process that holds the lease, None when no live one does. Raises OSError."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            return _read(descriptor)
        finally:
            os.close(descriptor)

    def _holds(self) -> bool:
        """Whether this process holds the lock of the very file that is there; a home may be removed and made anew."""
        if self._held is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._held), self._path.stat())
        except FileNotFoundError:
            return False

    def _taken(self) -> bool:
        self._home.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(_this_process())).encode(), 0)
        self._held = descriptor
        return True


def _this_process() -> Holder:
    command = processes.command_line(os.getpid())
    return Holder(socket.gethostname(), os.getpid(), time.time(), command, os.environ.get("DAGSTER_HOME", ""))


def _read(descriptor: int) -> Holder:
    """What the holder has written; it may not have come to that yet, or be another version's."""
    try:
        found = parsing.value(os.pread(descriptor, 65536, 0))
        return Holder(**{field.name: found[field.name] for field in fields(Holder)})
    except (ValueError, KeyError, TypeError):
        return Holder("this machine", 0, time.time(), "starting", "")
