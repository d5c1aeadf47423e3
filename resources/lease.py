"""Lease: one control plane decides for a home at a time, whoever has started it.

The code server whose sensors are evaluated first takes the lease, and holds it until it dies: the kernel gives it back,
however that happens. So it covers `slipway dev` and `slipway up` as well as `dagster dev` or `dg dev` over the same
home. Who comes second may look: its UI works, its sensors and schedules say who holds the lease, and at the first tick
after the holder's death it takes over.

A code server that was started for the same control plane later, as a person's "Reload" does, supersedes the holder,
which lives on as long as a run that it has loaded: the newer one claims the lease, and the older one, which looks at
the claim before each decision and between them, gives it back for good. So there are never two that decide.
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
"""Beside the lease, the newest code server that has claimed it from an older one of its own control plane."""
ATTEMPTS, PAUSE_SECONDS = 5, 0.01
"""Somebody who only asks who holds the lease has the lock for a moment."""
LOOK_SECONDS = 0.2
"""How often the holder looks whether the lease is claimed."""
HANDOVER_SECONDS = 5.0
"""How long a claim is waited for; where the older server is deciding, the next tick asks again."""
DECISION_SECONDS = 60.0
"""A decision that takes longer counts no more, as Dagster has dropped it: it hangs, and keeps nobody from deciding."""


@dataclass(frozen=True)
class LeaseHolder:
    """Who decides for a home."""

    host: str
    pid: int
    since: float
    """Seconds since the epoch."""
    command: str
    dagster: str
    """Its DAGSTER_HOME; empty where it has none."""
    plane: str
    """Its control plane: the process that starts its code servers, one after the other."""
    begun: int
    """When it began, in ticks since the boot: of the code servers of one control plane, the newest decides."""

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.since))
        dagster = f", DAGSTER_HOME={self.dagster}" if self.dagster else ""
        return f"process {self.pid} on {self.host}, since {at} ({self.command}{dagster})"

    def supersedes(self, other: "LeaseHolder") -> bool:
        """Whether this is the newer of two code servers of one control plane."""
        return (self.host, self.plane) == (other.host, other.plane) and self.begun > other.begun


class HomeLease:
    """The lease of one home, as this process has it or has it not."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / FILE
        self._claim = home / CLAIM
        self._descriptor: int | None = None
        self._taking = threading.Lock()
        self._me = _this_process()  # now, while the process that has started it lives
        self._newer: LeaseHolder | None = None
        self._watcher: threading.Thread | None = None
        self._deciding: dict[object, float] = {}
        """When each decision in progress began."""

    @contextlib.contextmanager
    def decision(self) -> Iterator[str | None]:
        """Why this process may not decide, None where it may; no other one decides until then. Raises OSError."""
        mark = object()
        with self._taking:
            if (why := self._take()) is None:
                self._deciding[mark] = time.monotonic()
        try:
            yield why
        finally:
            self._deciding.pop(mark, None)

    def take(self) -> str | None:
        """Hold the lease from now until this process ends or is superseded; else why not, naming who holds it.

        Raises OSError.
        """
        with self._taking:  # sensors are evaluated in threads
            return self._take()

    def _take(self) -> str | None:
        if self._is_superseded():
            return f"a newer code server of this control plane decides: {self._newer}; this one only ends its runs"
        if self._holds() or self._taken_within(ATTEMPTS * PAUSE_SECONDS):
            return None
        if (current := self.current_holder()) is not None and self._me.supersedes(current):
            atomic.replace(self._claim, json.dumps(asdict(self._me)).encode())
            if self._taken_within(HANDOVER_SECONDS):
                return None
            return f"the code server that this one supersedes still decides: {current}; this one does when that has"
        return (
            f"another control plane decides for {self._home}: {current or 'one that has just ended'}; this one "
            "only shows what is, and takes over when that one has ended"
        )

    def current_holder(self) -> LeaseHolder | None:
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
        if self._descriptor is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def _is_superseded(self) -> bool:
        """Whether a newer code server of this control plane has claimed the lease; then it never decides again."""
        if self._newer is None:
            with contextlib.suppress(FileNotFoundError):
                claimant = _parse_holder(regular_file.read(self._claim))
                self._newer = claimant if claimant is not None and claimant.supersedes(self._me) else None
        return self._newer is not None

    def _hand_over(self) -> None:
        """Give the lease back once it is claimed and nothing is being decided."""
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
        """Look for a claim from now on."""
        if self._watcher is None:
            self._watcher = threading.Thread(target=self._hand_over, name="lease", daemon=True)
            self._watcher.start()


def _this_process() -> LeaseHolder:
    pid, parent = os.getpid(), os.getppid()
    plane = f"{parent}.{processes.begun_ticks(parent)}"
    begun = processes.begun_ticks(pid)
    command = processes.command_line(pid)
    dagster = os.environ.get("DAGSTER_HOME", "")
    return LeaseHolder(socket.gethostname(), pid, time.time(), command, dagster, plane, begun)


def _read(descriptor: int) -> LeaseHolder:
    """What the holder has written; it may not have come to that yet, or be another version's."""
    lease_holder = _parse_holder(os.pread(descriptor, 65536, 0))
    return lease_holder or LeaseHolder("this machine", 0, time.time(), "starting", "", "", 0)


def _parse_holder(text: bytes) -> LeaseHolder | None:
    try:
        lease_fields = parsing.value(text)
        return LeaseHolder(**{field.name: lease_fields[field.name] for field in fields(LeaseHolder)})
    except (ValueError, KeyError, TypeError):
        return None
