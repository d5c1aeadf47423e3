"""Lease: only one control plane at a time makes decisions for a home, whoever started it.

The code server whose sensors are evaluated first takes the lease and holds it until it dies; the kernel releases it,
however the process ends. So the lease works for `slipway dev` and `slipway up` as well as for `dagster dev` or `dg dev`
over the same home. A second control plane only shows: its UI works, its sensors and schedules report who holds the
lease, and it takes over at the first tick after the holder's death.

A person's "Reload" starts a newer code server for the same control plane, while the older one lives on until its runs
end. The newer one claims the lease. The older one checks for a claim before each decision and between decisions, and
then releases the lease for good. So two servers never decide at the same time.
"""

import contextlib
import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from slipway.trainer.base import atomic, parsing, processes, regular_file

FILE = "control-plane.lease"
CLAIM = "control-plane.claim"
"""The file beside the lease that names the newest code server that claims it from an older one of its control plane."""
ATTEMPTS = 5
PAUSE_SECONDS = 0.01
"""The pause between attempts. A process that only asks who holds the lease takes the lock for a moment."""
LOOK_SECONDS = 0.2
"""How often the holder checks for a claim."""
HANDOVER_SECONDS = 5.0
"""How long a claimant waits for the older server; if that one is still deciding, the next tick tries again."""
DECISION_SECONDS = 60.0
"""A decision that takes longer no longer blocks a hand-over: it hangs, and Dagster has already given it up."""


@dataclass(frozen=True)
class LeaseHolder:
    """Who decides for a home."""

    host: str
    pid: int
    since: float
    """Seconds since the epoch."""
    command: str
    dagster: str
    """Its DAGSTER_HOME, or ""."""
    plane: str
    """Its control plane: the process that starts its code servers."""
    begun: int
    """Its start, in clock ticks since the boot. Of the code servers of one control plane, the newest decides."""

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        dagster = f", DAGSTER_HOME={self.dagster}" if self.dagster else ""
        return f"process {self.pid} on {self.host}, since {at} ({self.command}{dagster})"

    def supersedes(self, other: "LeaseHolder") -> bool:
        """Whether this is the newer of two code servers of one control plane."""
        return (self.host, self.plane) == (other.host, other.plane) and self.begun > other.begun


class HomeLease:
    """The lease of one home, from the view of this process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / FILE
        self._claim = home / CLAIM
        self._descriptor: int | None = None
        self._taking = threading.Lock()
        self._me = _this_process()  # read now, since the parent process may end later
        self._newer: LeaseHolder | None = None
        self._watcher: threading.Thread | None = None
        self._deciding: dict[object, float] = {}
        """The monotonic start time of each decision in progress."""

    @contextlib.contextmanager
    def decision(self) -> Iterator[str | None]:
        """Yields None if this process may decide, else the reason why not. No other process decides meanwhile.
        Raises OSError.
        """
        mark = object()
        with self._taking:
            reason = self._take()
            if reason is None:
                self._deciding[mark] = time.monotonic()
        try:
            yield reason
        finally:
            self._deciding.pop(mark, None)

    def take(self) -> str | None:
        """Take the lease until this process ends or is superseded. Returns None, or the reason and the holder.

        Raises OSError.
        """
        with self._taking:  # threads evaluate the sensors
            return self._take()

    def _take(self) -> str | None:
        if self._is_superseded():
            return f"a newer code server of this control plane decides: {self._newer}; this one only finishes its runs"
        if self._holds() or self._taken_within(ATTEMPTS * PAUSE_SECONDS):
            return None
        current = self.current_holder()
        if current is not None and self._me.supersedes(current):
            atomic.replace(self._claim, json.dumps(asdict(self._me)).encode())
            if self._taken_within(HANDOVER_SECONDS):
                return None
            return f"the older code server is still deciding: {current}; this one takes over when it has finished"
        return (
            f"another control plane decides for {self._home}: {current or 'one that has just ended'}; this one "
            "only shows the state, and takes over when the other has ended"
        )

    def current_holder(self) -> LeaseHolder | None:
        """The live process that holds the lease, or None. Raises OSError."""
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
        """Whether this process holds the lock of the file at the path now. A home may be removed and created again."""
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _is_superseded(self) -> bool:
        """Whether a newer code server of this control plane has claimed the lease; then this one decides no more."""
        if self._newer is None:
            with contextlib.suppress(FileNotFoundError):
                claimant = _parse_holder(regular_file.read(self._claim))
                self._newer = claimant if claimant is not None and claimant.supersedes(self._me) else None
        return self._newer is not None

    def _hand_over(self) -> None:
        """Release the lease once it is claimed and no decision is in progress."""
        while True:
            time.sleep(LOOK_SECONDS)
            with self._taking:
                if not self._is_superseded() or self._descriptor is None:
                    continue
                now = time.monotonic()
                if all(now - begun > DECISION_SECONDS for begun in list(self._deciding.values())):
                    os.close(self._descriptor)
                    self._descriptor = None
                    return

    def _taken_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not self._taken():
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def _taken(self) -> bool:
        self._home.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(replace(self._me, since=time.time()))).encode(), 0)
        self._watch()
        self._descriptor = descriptor
        return True

    def _watch(self) -> None:
        """Start to watch for a claim."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._hand_over, name="lease", daemon=True)
            self._watcher.start()


def _this_process() -> LeaseHolder:
    pid = os.getpid()
    parent = os.getppid()
    plane = f"{parent}.{processes.begun_ticks(parent)}"
    begun = processes.begun_ticks(pid)
    command = processes.command_line(pid)
    dagster = os.environ.get("DAGSTER_HOME", "")
    return LeaseHolder(socket.gethostname(), pid, time.time(), command, dagster, plane, begun)


def _read(descriptor: int) -> LeaseHolder:
    """The record of the holder; a placeholder if it is not written yet or belongs to another version."""
    lease_holder = _parse_holder(os.pread(descriptor, 65536, 0))
    return lease_holder or LeaseHolder("this machine", 0, time.time(), "starting", "", "", 0)


def _parse_holder(text: bytes) -> LeaseHolder | None:
    try:
        lease_fields = parsing.value(text)
        return LeaseHolder(**{field.name: lease_fields[field.name] for field in fields(LeaseHolder)})
    except (ValueError, KeyError, TypeError):
        return None
