"""Faults of the network, of storage and in values."""

import contextlib
import resource
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from slipway.operations.chaos import processes, sockets
from slipway.operations.chaos.signals import continued, signalled
from slipway.operations.chaos.target import Done, JobTarget, RunningTraining, chosen, named, send
from slipway.trainer.record import drills

PARTITION_SECONDS, FULL_SECONDS, STALL_SECONDS = 45.0, 30.0, 90.0
FULL_BYTES = 16 << 10
"""A disk that is full still takes so small a file: the records of a training."""


def network_cut(target: JobTarget, draw: float) -> Done | None:
    """All connections of a rank end at once; no process dies."""
    ranks = target.running(processes.RANK)
    rank = chosen(ranks if len(ranks) > 1 else [], draw)
    if rank is None:
        return None
    count = 0
    for connection in sockets.connections([rank.pid]):
        sockets.end(connection)
        count += 1
    return Done(f"{count} connections of {named(rank)} end", rank.node) if count else None


def partitioned(target: JobTarget, draw: float) -> Done | None:
    """What is sent to the processes of a node is lost; it can be reached again after a while."""
    nodes = sorted({process.node for process in target.running(processes.NODE)})
    node = chosen(nodes if len(nodes) > 1 else [], draw)
    if node is None:
        return None

    def pids() -> list[int]:
        return [process.pid for process in target.processes if process.node == node]

    for connection in sockets.connections(pids()):
        sockets.deafen(connection)

    def go_on(over: threading.Event) -> None:
        for _ in range(int(PARTITION_SECONDS / 0.25)):
            if over.wait(0.25) or not pids():
                break
            for connection in sockets.connections(pids()):  # what was opened since
                sockets.deafen(connection)
        for connection in sockets.connections(pids()):
            sockets.heal(connection)

    return Done(f"node {node} hears nothing for {PARTITION_SECONDS:.0f} s", node, go_on)


def disk_full(target: JobTarget, draw: float) -> Done | None:
    """What writes checkpoints can write no file of more than a few kilobytes for a while."""
    writers = [process.pid for process in target.running(processes.WRITER)]
    if not writers:
        return None
    _limit(writers, FULL_BYTES)

    def go_on(over: threading.Event) -> None:
        over.wait(FULL_SECONDS)
        _limit(writers, resource.RLIM_INFINITY)

    return Done(f"no room for checkpoints for {FULL_SECONDS:.0f} s", "", go_on)


def save_stalled(target: JobTarget, draw: float) -> Done | None:
    """What writes the checkpoints of rank 0 stands still, as on a disk that does not answer."""
    writers = [process.pid for process in target.running(processes.WRITER)][:1]
    if not send(writers, signal.SIGSTOP):
        return None
    what = f"what writes checkpoints ({writers[0]}) stands still for {STALL_SECONDS:.0f} s"
    return Done(what, "", continued(writers, STALL_SECONDS))


def damaged(target: JobTarget, draw: float) -> Done | None:
    """One bit of the newest checkpoint on the durable tier flips, and a rank is killed, so that it is needed."""
    if not target.facts.commits:
        return None
    folder = target.home.durable / target.facts.commits[-1].folder
    with contextlib.suppress(OSError):
        if file := max((path for path in folder.rglob("*") if path.is_file()), key=_size, default=None):
            _flip(file, draw)
            if killed := signalled(signal.SIGKILL, processes.RANK)(target, draw):
                return Done(f"a bit of {file.name} in checkpoint {folder.name} flipped; {killed.what}", killed.node)
    return None


def drilled(kind: str) -> Callable[[RunningTraining, float], Done | None]:
    """A fault that a rank does to itself, where the recipe allows it."""

    def act(target: RunningTraining, draw: float) -> Done | None:
        facts = target.facts
        ranks = sorted(beat.rank for beat in facts.beats)
        rank = chosen(ranks if len(ranks) > 1 or kind not in drills.SEVERAL else [], draw)
        allowed = facts.run_policy.operation.get("recovery", {}).get("drills", False)
        if rank is None or not allowed or facts.claim is None:
            return None
        token = "" if kind == drills.NAN_FOR_EVER else str(facts.claim.token)
        drills.order(facts.folder, kind, rank, token, "chaos")
        return Done(f"rank {rank}: {drills.KINDS[kind]}")

    return act


def _limit(pids: list[int], size: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            _, hard_limit = resource.prlimit(pid, resource.RLIMIT_FSIZE)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, hard_limit))


def _size(file: Path) -> int:
    return file.stat().st_size


def _flip(file: Path, draw: float) -> None:
    with file.open("r+b") as opened:
        offset = int(draw * _size(file))
        opened.seek(offset)
        [byte] = opened.read(1)
        opened.seek(offset)
        opened.write(bytes([byte ^ 1]))
