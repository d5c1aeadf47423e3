"""The processes of one local job: they start together, and the end of one that failed is the end of all."""

import functools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from resources.launcher import commands
from resources.launcher.folder import Ending, JobFolder, Order
from resources.launcher.protocol import State
from trainer import processes


@dataclass(frozen=True)
class Cause:
    """Why running nodes are being ended, and by when they must have."""

    state: State
    reason: str
    deadline: float
    """Seconds since the epoch."""


class Gang:
    """One process per node and, with more than one rank, the rendezvous store."""

    def __init__(self, folder: JobFolder, order: Order, lock: int) -> None:
        """Start them all. The nodes inherit `lock`, so that it stays held until the last of them has died."""
        self._folder = folder
        self._order = order
        self._store: subprocess.Popen[bytes] | None = None
        port = self._start_store() if commands.world_size(order.job) > 1 else 0
        self._nodes = {node: self._start_node(node, port, lock) for node in order.job.nodes}
        self.sent: dict[str, set[int]] = {node: set() for node in order.job.nodes}
        """The signals that each node was sent from here."""

    def codes(self) -> dict[str, int | None]:
        """Each node's exit code, -n when signal n killed it, None while it runs."""
        return {node: process.poll() for node, process in self._nodes.items()}

    def store_died(self) -> bool:
        return self._store is not None and self._store.poll() is not None

    def send(self, number: signal.Signals) -> None:
        """Send the signal to the nodes that run."""
        for node, process in self._nodes.items():
            if process.poll() is None:
                self.sent[node].add(number)
                process.send_signal(number)

    def _start_store(self) -> int:
        """Start the store on a port that the kernel chose; return the port."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            command = [sys.executable, "-m", "resources.launcher.rendezvous", str(listener.fileno())]
            self._store = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[listener.fileno()],
                preexec_fn=_bound(signal.SIGKILL),
            )
            port: int = listener.getsockname()[1]
            return port

    def _start_node(self, node: str, port: int, lock: int) -> "subprocess.Popen[bytes]":
        job = self._order.job
        kind = "agent" if commands.world_size(job) > 1 else "rank"
        command = commands.rank_command(job, self._folder.config, port)
        with self._folder.log(node).open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "trainer.node", kind, job.folder, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=commands.rank_environment(self._order, node, os.environ),
                pass_fds=[lock],
                # Not SIGKILL: a node that learns of the keeper's death takes its foreign processes along.
                preexec_fn=_bound(signal.SIGHUP),
            )


def ending(codes: Mapping[str, int], sent: Mapping[str, Collection[int]], cause: Cause | None) -> Ending:
    """How a job of these exit codes ended: as `cause` says where there is one, else as the nodes did."""
    lost = tuple(node for node, code in codes.items() if code < 0 and -code not in sent[node])
    accounts = [_account(node, code, sent[node]) for node, code in codes.items()]
    succeeded = cause is None and not any(codes.values())
    state = cause.state if cause else State.SUCCEEDED if succeeded else State.FAILED
    return Ending(state, "; ".join(filter(None, [cause.reason if cause else "", *accounts])), lost)


def _account(node: str, code: int, sent: Collection[int]) -> str:
    """What one node's exit code tells a person; nothing when it did as it was told."""
    if code < 0 and -code not in sent:
        return f"{node} was lost: {signal.Signals(-code).name}"
    if signal.SIGKILL in sent:
        return f"{node} was killed when its grace was over"
    if code == 0 or sent:
        return ""
    by_signal = f" ({signal.Signals(code - 128).name})" if code - 128 in set(signal.Signals) else ""
    return f"{node} ended with exit code {code}{by_signal}"


def _bound(by: signal.Signals) -> "functools.partial[None]":
    """What a child calls between fork and exec to be sent `by` when this process dies."""
    return functools.partial(processes.die_with_parent, parent=os.getpid(), by=by)
