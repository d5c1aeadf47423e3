"""The keeper of one job: the detached process that starts its nodes, watches them as a gang, and ends them all.

``python -m slipway.resources.launchers.local.keeper FOLDER`` returns as soon as the job has a keeper, this process or
another. The keeper outlives its submitter and leaves no process behind; if the keeper dies, the nodes die too.
"""

import os
import signal
import sys
import time
import traceback
from pathlib import Path

from slipway.resources.fleet.embedded import mark_lost
from slipway.resources.launchers.local.folder import Ending, JobFolder
from slipway.resources.launchers.local.gang import Gang, GangEnd, StartNode, ending, executed
from slipway.resources.launchers.protocol import JobState
from slipway.trainer.base import console, processes
from slipway.trainer.record import causes

POLL_SECONDS = 0.2
GANG_GRACE_SECONDS = 3.0
"""How long the other nodes may take to end after one has failed."""


def keep(folder: JobFolder, lock: int, start: StartNode = executed) -> None:
    """Run the job to its end, and record the end once no process of the job is left."""
    processes.adopt_orphans()
    folder.keep()
    try:
        folder.start()
        end = _watch(folder, lock, start)
    except Exception as error:  # every job must have a recorded end
        traceback.print_exc()
        end = Ending(JobState.FAILED, f"its keeper failed: {error}")
    survivors = processes.kill_descendants()
    if survivors:
        end = Ending(JobState.FAILED, f"{end.reason}; processes that cannot be killed: {survivors}", end.lost_nodes)
    if folder.is_locked_by(lock):
        folder.end(end)


def _watch(folder: JobFolder, lock: int, start: StartNode) -> Ending:
    """Start the gang, and wait until every node has ended by itself or was ended."""
    order = folder.order()
    gang = Gang(folder, order, lock, start)
    cause: GangEnd | None = None
    while None in gang.codes().values():
        if cause is None:
            gang.end_stopped()
            for node in gang.go_on_without_lost():
                folder.lose(node)
                mark_lost(order.fleet, node, f"died under job {order.job.name}")
            for node in folder.wanted_back():
                if gang.bring_back(node):
                    folder.take_back(node)
            cause = _cause_to_end(folder, lock, gang)
            if cause is not None:
                gang.send(signal.SIGTERM)
        elif time.time() >= cause.deadline:
            gang.send(signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    codes = {node: code for node, code in gang.codes().items() if code is not None}
    end = ending(codes, gang.sent, cause, gang.dropped_nodes)
    for node in end.lost_nodes:
        mark_lost(order.fleet, node, f"died under job {order.job.name}")
    return end


def _cause_to_end(folder: JobFolder, lock: int, gang: Gang) -> GangEnd | None:
    """Why the running nodes must end now; None if they need not."""
    now = time.time()
    if not folder.is_locked_by(lock):
        return GangEnd(JobState.STOPPED, "its folder was deleted", now)
    deadline = folder.stop_deadline()
    if deadline is not None:
        return GangEnd(JobState.STOPPED, "cancelled", deadline)
    if gang.store_died():
        return GangEnd(JobState.FAILED, "its rendezvous store died", now + GANG_GRACE_SECONDS, causes.NETWORK)
    if any(code for node, code in gang.codes().items() if node not in gang.dropped_nodes):
        return GangEnd(JobState.FAILED, "", now + GANG_GRACE_SECONDS)
    return None


def _reset_signals() -> None:
    """Reset signals that the submitter blocks or ignores (nohup, a shell's `&`), since the ranks would inherit that."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def main() -> int:
    folder = JobFolder(Path(sys.argv[1]))
    lock = folder.lock()
    if lock is None or folder.has_begun():
        return 0
    # The submitter waits only for the parent, so no child of it can become a zombie.
    if os.fork() > 0:
        os._exit(0)
    _reset_signals()
    keep(folder, lock)
    return 0


if __name__ == "__main__":
    console.explain("slipway.resources.launchers.local.keeper", "keeps one job of the embedded instance")
    sys.exit(main())
