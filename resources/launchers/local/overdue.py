"""Overdue: what becomes of a job whose keeper does not do its part.

A keeper may be killed between its fork and its first file, or be stopped, or hang. Whoever asks about the job after the
deadline gives it the end that its keeper will not give it.
"""

import os
import time

from slipway.resources.launchers.local.folder import CANCEL, EXIT, JOB, KEEPER_DIED, LOCK, STARTED, Ending, JobFolder
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.base import processes

KEEPER = "slipway.resources.launchers.local.keeper"
FIRST_FILE_SECONDS = 5.0
"""Between a keeper's lock and its first file lie milliseconds: without a keeper, nothing comes after this long."""
HUNG_SECONDS = 15.0
"""How long a keeper may take after a deadline of its job, in which it kills the nodes and reaps them."""
GONE_SECONDS = 2.0


def settle(folder: JobFolder) -> None:
    """End a job that its keeper should have ended. Raises OSError when the disk fails."""
    if not (folder.path / JOB).exists() or (folder.path / EXIT).exists():
        return
    if not (folder.path / STARTED).exists():
        _settle_unstarted(folder)
    elif folder.keeper_died():
        _kill(folder, KEEPER_DIED)  # the nodes heard of it and have ended, but for those that stand still
    elif (folder.path / CANCEL).exists() and time.time() > (folder.stop_deadline() or 0.0) + HUNG_SECONDS:
        _kill(folder, Ending(JobState.STOPPED, "cancelled; its keeper did not heed it, and was killed"))


def _settle_unstarted(folder: JobFolder) -> None:
    """End a job whose keeper has had its lock and wrote nothing."""
    try:
        age = time.time() - (folder.path / LOCK).stat().st_mtime
    except FileNotFoundError:
        return  # no keeper has begun: the next submit starts one
    if age < FIRST_FILE_SECONDS:
        return
    lock = folder.lock()
    if lock is None:
        if age > HUNG_SECONDS:
            _kill(folder, Ending(JobState.FAILED, "its keeper hung before it started the nodes, and was killed"))
        return
    try:
        if not folder.has_begun():
            folder.end(Ending(JobState.FAILED, "its keeper died before it started the nodes"))
    finally:
        os.close(lock)


def _kill(folder: JobFolder, ending: Ending) -> None:
    """Kill what holds the lock with all below it; the end is recorded when nothing does, now or at a later call."""
    for pid in processes.holding(folder.path / LOCK):
        processes.kill_tree(pid)
    deadline = time.monotonic() + GONE_SECONDS
    while (lock := folder.lock()) is None:
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
    try:
        folder.end(ending)
    finally:
        os.close(lock)
