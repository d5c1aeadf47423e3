"""The lock of a home: a home is used by one instance at a time, or by one command that needs it to be down.

Whoever uses it holds the lock of a file in the home. The kernel lets go of the lock however its process ends; what is
written in the file says who that was.
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
"""In the home, with the pid and the URL of its instance, or with the command that holds it."""
LOOK_SECONDS = 2.0
"""Longer than a look into the lock takes."""


def current_user(home: Home) -> dict[str, str | int] | None:
    """`pid` and `url` of the instance that uses this home, None when there is none; without a URL it is starting.

    A command that needs the home to be down has the pid 0, and `by` names it.
    """
    try:
        with open(home.root / LOCK) as lock:
            if _locked(lock):
                return None
            return json.loads(lock.read() or "null") or {"pid": 0, "url": ""}
    except FileNotFoundError:
        return None


def description(there: dict[str, str | int]) -> str:
    """Who uses a home, for a person."""
    if by := there.get("by"):
        return str(by)
    return f"process {there['pid']}, {there['url'] or 'starting'}" if there["pid"] else "starting"


@contextlib.contextmanager
def taken(home: Home) -> Iterator[IO[str]]:
    """Meanwhile the home is ours alone; the open lock, for `describe`. Raises CannotStart while another uses it."""
    with open(home.root / LOCK, "a+") as lock:
        # A command that looks who the holder is has the lock for a moment.
        deadline = time.monotonic() + LOOK_SECONDS
        while not (is_locked := _locked(lock)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if not is_locked:
            lock.seek(0)
            who = description(json.loads(lock.read() or "null") or {"pid": 0, "url": ""})
            raise CannotStart(
                f"SLIPWAY_HOME {home.root}: found another process using it ({who}), expected none; stop that one first"
            )
        yield lock


@contextlib.contextmanager
def kept_down(home: Home, command: str) -> Iterator[None]:
    """Meanwhile no instance of this home can start; `command` says to a person who needs that.

    Raises CannotStart while an instance uses it.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    with taken(home) as lock:
        _write(lock, {"pid": 0, "url": "", "by": f"{command}, process {os.getpid()}"})
        yield


def describe(lock: IO[str], url: str) -> None:
    """Write the instance into the lock, for the commands that look at it or end it."""
    _write(lock, {"pid": os.getpid(), "url": url})


def _write(lock: IO[str], there: dict[str, str | int]) -> None:
    lock.truncate(0)
    lock.write(json.dumps(there))
    lock.flush()


def _locked(lock: IO[str]) -> bool:
    """Take the lock for as long as the file is open; False when another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
