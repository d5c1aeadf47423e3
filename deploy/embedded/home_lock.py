"""The lock of a home: one instance at a time uses a home, or one command that needs the instance to be down.

The user of the home holds a lock on a file in it, and the file's content names the user. The kernel releases the lock
when the process ends, for any reason.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import IO

from slipway.deploy.embedded import CannotStart
from slipway.resources.home import Home

LOCK = "instance.lock"
"""The name of the lock file. It contains the pid and the URL of the instance, or the command that holds the lock."""
LOOK_SECONDS = 2.0
"""How long to wait for the lock: longer than another command needs to read the file under the lock."""


def current_user(home: Home) -> dict[str, str | int] | None:
    """The `pid` and `url` of the instance that uses this home, or None. While the instance starts, the URL is empty.

    For a command that needs the instance to be down, the pid is 0 and `by` names the command.
    """
    try:
        with open(home.root / LOCK) as lock:
            if _locked(lock):
                return None
            return json.loads(lock.read() or "null") or {"pid": 0, "url": ""}
    except FileNotFoundError:
        return None


def description(there: dict[str, str | int]) -> str:
    """The user of a home in words."""
    command = there.get("by")
    if command:
        return str(command)
    return f"process {there['pid']}, {there['url'] or 'starting'}" if there["pid"] else "starting"


@contextlib.contextmanager
def taken(home: Home) -> Iterator[IO[str]]:
    """Hold the home exclusively, and yield the lock file for `describe`. Raises CannotStart if the home is in use."""
    with open(home.root / LOCK, "a+") as lock:
        # A command that reads the holder's name holds the lock for a moment.
        deadline = time.monotonic() + LOOK_SECONDS
        is_locked = _locked(lock)
        while not is_locked and time.monotonic() < deadline:
            time.sleep(0.05)
            is_locked = _locked(lock)
        if not is_locked:
            lock.seek(0)
            who = description(json.loads(lock.read() or "null") or {"pid": 0, "url": ""})
            raise CannotStart(
                f"SLIPWAY_HOME {home.root}: found another process using it ({who}), expected none; stop that one first"
            )
        yield lock


@contextlib.contextmanager
def kept_down(home: Home, command: str) -> Iterator[None]:
    """Prevent instances of this home from starting; messages to people name `command` as the reason.

    Raises CannotStart if an instance uses the home.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    with taken(home) as lock:
        _write(lock, {"pid": 0, "url": "", "by": f"{command}, process {os.getpid()}"})
        yield


def describe(lock: IO[str], url: str) -> None:
    """Write the instance into the lock file, for commands that show or end it."""
    _write(lock, {"pid": os.getpid(), "url": url})


def _write(lock: IO[str], there: dict[str, str | int]) -> None:
    lock.truncate(0)
    lock.write(json.dumps(there))
    lock.flush()


def _locked(lock: IO[str]) -> bool:
    """Take the lock until the file is closed. Returns False if another process holds it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
