"""The gang: the processes of one local job, which start together, and all end if one fails."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from slipway.resources.launchers.local.folder import Ending, JobFolder, LocalOrder
from slipway.resources.launchers.local.local_process import LOCAL_ADDRESS, local_rank_environment
from slipway.resources.launchers.protocol import JobState
from slipway.resources.launchers.torchrun import node_command
from slipway.trainer.base import processes
from slipway.trainer.node.process import Standstill
from slipway.trainer.record import causes


@dataclass(frozen=True)
class GangEnd:
    """Why running nodes are being ended, and their deadline."""

    state: JobState
    reason: str
    deadline: float
    """Seconds since the epoch."""
    kind: str = ""
    """The cause, from `slipway.trainer.record.causes`; "" if the exit codes of the nodes show it."""


class NodeHandle(Protocol):
    """The process of a node, as its parent process sees it."""

    pid: int

    def poll(self) -> int | None: ...

    def send_signal(self, number: signal.Signals) -> None: ...


StartNode = Callable[[Sequence[str], Mapping[str, str], int, int], NodeHandle]
"""Starts the process of a node, from its command, its environment, the descriptor of its log, and the inherited lock.

When this process dies, the kernel sends the node process SIGHUP instead of SIGKILL, so that it can also end processes
outside its process group.
"""


def executed(command: Sequence[str], environment: Mapping[str, str], log: int, lock: int) -> NodeHandle:
    """Start the process of a node as a new program."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        pass_fds=[lock],
        preexec_fn=_ends_with_us(signal.SIGHUP),
    )


class Gang:
    """One process per node and, if there is more than one rank, the rendezvous store."""

    def __init__(self, folder: JobFolder, order: LocalOrder, lock: int, start: StartNode = executed) -> None:
        """Start all processes. The nodes inherit `lock`, which is held until the last of them has died."""
        self._folder = folder
        self._start = start
        self._order = order
        self._store: subprocess.Popen[bytes] | None = None
        self._port = 0 if order.job.is_lone else self._start_store()
        self._lock = lock
        self._nodes = {node: self._start_node(node) for node in order.job.nodes}
        self.sent: dict[str, set[int]] = {node: set() for node in order.job.nodes}
        """The signals that this process has sent to each node."""
        self._standstill = Standstill()
        self.dropped_nodes: list[str] = []
        """The dead nodes without which the job goes on."""

    def codes(self) -> dict[str, int | None]:
        """Each node's exit code: -n if signal n killed it, None while it runs."""
        return {node: process.poll() for node, process in self._nodes.items()}

    def store_died(self) -> bool:
        return self._store is not None and self._store.poll() is not None

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all running nodes."""
        for node, process in self._nodes.items():
            if process.poll() is None:
                self.sent[node].add(number)
                process.send_signal(number)

    def end_stopped(self) -> None:
        """Kill the nodes that have been stopped for too long; they count as dead."""
        for process in self._nodes.values():
            if process.poll() is None and self._standstill.is_over_long(process.pid):
                process.send_signal(signal.SIGKILL)

    def go_on_without_lost(self) -> list[str]:
        """Tell the supervisors which nodes have died since the last call, if enough are left; returns these nodes."""
        codes = self.codes()
        lost = [node for node, code in codes.items() if code is not None and is_lost(code, self.sent[node])]
        running = [code for code in codes.values() if code is None or code == 0]
        if self._store is None or len(running) < self._order.job.least_nodes:
            return []
        new = [node for node in lost if node not in self.dropped_nodes]
        assert self._store.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a dead store ends the job
            self._store.stdin.write("".join(f"{node}\n" for node in new).encode())
        self.dropped_nodes += new
        return new

    def bring_back(self, node: str) -> bool:
        """Start a dead node again. Returns False if the job does not run without it."""
        if node not in self.dropped_nodes or self._nodes[node].poll() is None:
            return False
        self.dropped_nodes.remove(node)
        self.sent[node] = set()
        self._nodes[node] = self._start_node(node)
        return True

    def _start_store(self) -> int:
        """Start the rendezvous store on a port that the kernel chooses; returns the port."""
        with socket.create_server((LOCAL_ADDRESS, 0)) as listener:
            command = [
                sys.executable,
                "-P",
                "-m",
                "slipway.resources.launchers.local.rendezvous",
                str(listener.fileno()),
            ]
            self._store = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                bufsize=0,
                pass_fds=[listener.fileno()],
                preexec_fn=_ends_with_us(signal.SIGKILL),
            )
            port: int = listener.getsockname()[1]
            return port

    def _start_node(self, node: str) -> NodeHandle:
        endpoint = f"{LOCAL_ADDRESS}:{self._port}"
        command = node_command(self._order.job, str(self._folder.config), endpoint, sys.executable)
        with self._folder.log(node).open("ab") as log:
            return self._start(command, local_rank_environment(self._order, node, os.environ), log.fileno(), self._lock)


def is_lost(code: int, sent: Collection[int]) -> bool:
    """Whether a node process with this exit code died of a signal that the keeper did not send."""
    return code < 0 and -code not in sent


def ending(
    codes: Mapping[str, int],
    sent: Mapping[str, Collection[int]],
    cause: GangEnd | None,
    dropped_nodes: Collection[str] = (),
) -> Ending:
    """How a job with these exit codes ended: by `cause` if there is one, else as its nodes ended.

    The nodes in `dropped_nodes` did not cause the end, since the job went on without them.
    """
    lost = tuple(node for node, code in codes.items() if node not in dropped_nodes and is_lost(code, sent[node]))
    explanations = [_explanation(node, code, sent[node]) for node, code in codes.items()]
    state = JobState.SUCCEEDED
    kind = ""
    if cause is not None:
        state = cause.state
        kind = cause.kind
        explanations.insert(0, cause.reason)
    elif any(code for node, code in codes.items() if node not in dropped_nodes):
        state = JobState.FAILED
    if not kind and state is JobState.FAILED and any(_was_killed(code, sent[node]) for node, code in codes.items()):
        kind = causes.KILLED
    return Ending(state, "; ".join(filter(None, explanations)), lost, kind)


def _was_killed(code: int, sent: Collection[int]) -> bool:
    """Whether a signal killed a process of a node, other than SIGTERM and the signals that the keeper sent."""
    return code > 128 and code - 128 not in {*sent, signal.SIGTERM}


def _explanation(node: str, code: int, sent: Collection[int]) -> str:
    """One node's exit code for a person; "" if the node succeeded or ended on request."""
    if is_lost(code, sent):
        return f"{node} was lost: {signal.Signals(-code).name}"
    if signal.SIGKILL in sent:
        return f"{node} was killed at the end of its grace period"
    if code == 0 or sent:
        return ""
    by_signal = f" ({signal.Signals(code - 128).name})" if code - 128 in set(signal.Signals) else ""
    return f"{node} ended with exit code {code}{by_signal}"


def _ends_with_us(by: signal.Signals) -> "functools.partial[None]":
    """The function that a child calls between fork and exec, so that it receives `by` when this process dies."""
    return functools.partial(processes.die_with_parent, parent=os.getpid(), by=by)
