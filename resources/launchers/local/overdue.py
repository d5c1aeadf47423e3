"""Overdue jobs: end a job whose keeper fails to do so.

A keeper may be killed between its fork and its first file, or be stopped, or hang. The first process that polls the job
after the deadline records its end instead.
"""

import os
import time

from slipway.resources.launchers.local.folder import CANCEL, EXIT, JOB, KEEPER_DIED, LOCK, STARTED, Ending, JobFolder
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.base import processes

KEEPER = "slipway.resources.launchers.local.keeper"
FIRST_FILE_SECONDS = 5.0
"""The time after which a keeper without a first file counts as dead; usually the file follows within milliseconds."""
HUNG_SECONDS = 15.0
"""How long a keeper may take after a deadline of its job, to kill and reap the nodes."""
GONE_SECONDS = 2.0


def settle(folder: JobFolder) -> None:
    """End a job that its keeper should have ended. Raises OSError if the disk fails."""
    if not (folder.path / JOB).exists() or (folder.path / EXIT).exists():
        return
    if not (folder.path / STARTED).exists():
        _settle_unstarted(folder)
    elif folder.keeper_died():
        _kill(folder, KEEPER_DIED)  # the kernel has signalled the nodes, but stopped ones have not ended
    elif (folder.path / CANCEL).exists() and time.time() > (folder.stop_deadline() or 0.0) + HUNG_SECONDS:
        _kill(folder, Ending(JobState.STOPPED, "cancelled; its keeper did not respond, and was killed"))


def _settle_unstarted(folder: JobFolder) -> None:
    """End a job whose keeper took the lock but wrote nothing."""
    try:
        age = time.time() - (folder.path / LOCK).stat().st_mtime
    except FileNotFoundError:
        return  # no keeper was started; the next submit starts one
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
    """Kill all processes that hold the lock, with their descendants. The end is recorded once the lock is free, now or
    at a later call."""
    for pid in processes.holding(folder.path / LOCK):
        processes.kill_tree(pid)
    deadline = time.monotonic() + GONE_SECONDS
    lock = folder.lock()
    while lock is None:
        if time.monotonic() > deadline:
            return
        time.sleep(0.02)
        lock = folder.lock()
    try:
        folder.end(ending)
    finally:
        os.close(lock)
