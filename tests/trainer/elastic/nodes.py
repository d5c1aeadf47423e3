"""Nodes for a test: a supervisor each, with the job's store in a process of its own that belongs to no node."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.trainer.base import processes
from slipway.trainer.elastic.generations import REPLACED, STOP_REQUESTED, STOPPING, key
from slipway.trainer.elastic.job_store import JobStore
from slipway.trainer.node.agent import ADDRESS_VARIABLE
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.trainer.conftest import CODE, MARK, Training
from tests.trainer.elastic.namespaces import Networks

INCARNATION = 1


@dataclass(frozen=True)
class Fault:
    """What a rank does to itself after a step: so many times in all generations together."""

    rank: int
    step: int
    number: signal.Signals
    times: int = 1
    later: int = 0
    """Another step after which it does it; 0 for none."""


class SupervisedNodes:
    """The nodes of one incarnation, each the process under which everything of the node dies."""

    def __init__(
        self,
        training: Training,
        names: Sequence[str],
        fault: Fault | None = None,
        least: int = 0,
        ranks: int = 1,
        replaced_seconds: float = 0.0,
        networks: Networks | None = None,
    ) -> None:
        """Start them; `least` nodes are enough to go on, by default all.

        replaced_seconds: how long a job with too few nodes waits for one in a lost one's place, 0 where none comes.
        networks: a network for each node; by default they share that of the machine.
        The ranks of a single node meet in a store of that node.
        """
        assert fence.claim(training.store, Token(INCARNATION), nodes=tuple(names), cause="a test", by="a test")
        self.training, self._ranks, self._replaced = training, ranks, replaced_seconds
        self._networks, self._host = networks, networks.host if networks else "127.0.0.1"
        with socket.create_server((self._host, 0)) as listener:
            self._port = listener.getsockname()[1]
            self.store = subprocess.Popen(
                [sys.executable, "-m", "slipway.resources.launchers.local.rendezvous", str(listener.fileno())],
                env={**os.environ, "PYTHONPATH": str(CODE), MARK: training.mark},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                text=True,
            )
        self._port = self._port if len(names) > 1 or ranks == 1 else 0
        self._connection: JobStore | None = None
        count = f"{least}:{len(names)}" if least else str(len(names))
        self._logs = {name: training.folder / f"{name}.log" for name in names}
        self._count, self._runs = count, self._module(fault)
        self.processes = {name: self._start(name) for name in names}

    def ranks(self, node: str) -> list[int]:
        """The pids of the live ranks of a node."""
        return [pid for pid in processes.descendants(self.processes[node].pid) if is_rank(pid)]

    def supervisor(self, node: str) -> int:
        [pid] = processes.children(self.processes[node].pid)
        return pid

    def kill(self, node: str) -> None:
        """Kill a node as a machine dies."""
        for pid in (self.processes[node].pid, *processes.descendants(self.processes[node].pid)):
            os.kill(pid, signal.SIGKILL)
        self.processes[node].wait()

    def lose(self, *names: str) -> None:
        """Kill nodes, and tell the others as a launcher does."""
        for name in names:
            self.kill(name)
        assert self.store.stdin is not None
        self.store.stdin.write("".join(f"{name}\n" for name in names))
        self.store.stdin.flush()

    def bring_back(self, name: str) -> None:
        """Start a node anew, as a launcher does with one that is back."""
        self.processes[name] = self._start(name)

    def ended(self, *names: str) -> list[int]:
        """Wait until these nodes, by default all, have ended; their exit codes."""
        return [self.processes[name].wait(240) for name in names or self.processes]

    def is_stopping(self) -> bool:
        """Whether a node has told the others that it was asked to stop."""
        return JobStore.connected(self._host, self._port, 60).has(STOPPING)

    def is_asked(self, node: str) -> bool:
        """Whether a node has told the others that it was asked to leave."""
        return JobStore.connected(self._host, self._port, 60).has(f"{STOP_REQUESTED}/{node}")

    def waiting(self, generation: int) -> int:
        """How many nodes wait to take part after a generation."""
        self._connection = self._connection or JobStore.connected(self._host, self._port, 60)
        return self._connection.count(key(generation, "waits"))

    def log_of(self, node: str) -> str:
        """What a node has said so far."""
        return self._logs[node].read_text()

    def close(self) -> None:
        """End what still runs."""
        running: list[subprocess.Popen[Any]] = [*self.processes.values(), self.store]
        for process in running:
            process.kill()
            process.communicate()

    def _module(self, fault: Fault | None) -> list[str]:
        if fault is None:
            return ["slipway.trainer.supervisor"]
        folder = self.training.folder / "faults"
        folder.mkdir(exist_ok=True)
        arguments = (fault.rank, f"{fault.step},{fault.later}", int(fault.number), fault.times, folder)
        return ["tests.trainer.elastic.dying", *map(str, arguments)]

    def _start(self, name: str) -> "subprocess.Popen[bytes]":
        own, inside = dict[str, str](), list[str]()
        if self._networks:
            own = {ADDRESS_VARIABLE: self._networks.address(name), "GLOO_SOCKET_IFNAME": "eth0"}
            inside = self._networks.inside(name)
        with self._logs[name].open("ab") as log:
            return subprocess.Popen(
                [
                    *inside,
                    *(sys.executable, "-m", "slipway.trainer.node.process", "supervisor", ""),
                    *(
                        sys.executable,
                        "-P",
                        "-m",
                        *self._runs,
                        f"--nnodes={self._count}",
                        f"--nproc-per-node={self._ranks}",
                    ),
                    *(
                        "--rdzv-id=tiny",
                        f"--rdzv-endpoint={self._host}:{self._port}",
                        str(self.training.config),
                    ),
                ],
                env=self.training.environment(
                    SLIPWAY_NODE=name,
                    SLIPWAY_INCARNATION=str(INCARNATION),
                    **{REPLACED: str(self._replaced)},
                    **own,
                ),
                stdout=log,
                stderr=log,
            )


def has_stepped(training: Training, generation: int) -> bool:
    """Whether a generation has done a step."""
    path = training.store / "ledger" / f"{Token(INCARNATION, generation)}.rank-0.jsonl"
    return path.exists() and '"event":"step"' in path.read_text()


def generation(training: Training) -> int:
    """The newest generation that is claimed."""
    newest_claim = fence.newest_claim(training.store)
    assert newest_claim is not None and newest_claim.token.incarnation == INCARNATION
    return newest_claim.token.generation


def is_rank(pid: int) -> bool:
    """Whether a process has the command line of a rank."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"slipway.trainer"]
    except OSError:
        return False
