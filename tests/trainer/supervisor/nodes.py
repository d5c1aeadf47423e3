"""Nodes for a test: a supervisor each, with the job's store in a process of its own that belongs to no node."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import until
from tests.trainer.conftest import CODE, MARK, Ended, Training, wait
from trainer.base import processes
from trainer.record import fence
from trainer.record.fence import Token

INCARNATION = 1


class SupervisedNodes:
    """The nodes of one incarnation, each the process under which everything of the node dies."""

    def __init__(self, training: Training, names: Sequence[str], ranks: int = 1, least: int = 0) -> None:
        """Start them; `least` nodes are enough to go on, by default all."""
        assert fence.claim(training.store, Token(INCARNATION), nodes=tuple(names), cause="a test", by="a test")
        self.training, self._ranks = training, ranks
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port = listener.getsockname()[1]
            self.store = subprocess.Popen(
                [sys.executable, "-m", "resources.launchers.local.rendezvous", str(listener.fileno())],
                env={**os.environ, "PYTHONPATH": str(CODE), MARK: training.mark},
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                text=True,
            )
        count = f"{least}:{len(names)}" if least else str(len(names))
        self.processes = {name: self._start(name, count) for name in names}

    def ranks(self, node: str) -> list[int]:
        """The pids of the live ranks of a node."""
        return [pid for pid in processes.descendants(self.processes[node].pid) if is_rank(pid)]

    def supervisor(self, node: str) -> int:
        [pid] = processes.children(self.processes[node].pid)
        return pid

    def until_ranks(self, count: int = 1) -> None:
        until(lambda: all(len(self.ranks(name)) == count for name in self.processes), "the ranks", 120)

    def until_generation(self, generation: int) -> None:
        """Wait until that generation of ranks has done a step."""
        wanted = Token(INCARNATION, generation)
        until(lambda: self.steps(wanted), f"a step of generation {generation}", 120)

    def steps(self, token: Token) -> list[int]:
        path = self.training.store / "ledger" / f"{token}.rank-0.jsonl"
        return path.read_text().count('"event":"step"') * [0] if path.exists() else []

    def lose(self, node: str) -> None:
        """Kill a node as a machine dies, and tell the others as a launcher does."""
        for pid in (self.processes[node].pid, *processes.descendants(self.processes[node].pid)):
            os.kill(pid, signal.SIGKILL)
        wait(self.processes[node])
        assert self.store.stdin is not None
        self.store.stdin.write(f"{node}\n")
        self.store.stdin.flush()

    def ended(self, *nodes: str) -> dict[str, Ended]:
        """Wait until these nodes, by default all, have ended; how."""
        found = {name: wait(self.processes[name]) for name in nodes or self.processes}
        self.close()
        return found

    def close(self) -> None:
        """End what still runs."""
        for process in (*self.processes.values(), self.store):
            process.kill()
            process.communicate()

    def _start(self, name: str, count: str) -> "subprocess.Popen[str]":
        return self.training.spawn(
            *("trainer.node.process", "supervisor", "", sys.executable, "-P", "-m", "trainer.supervisor"),
            *(f"--nnodes={count}", f"--nproc-per-node={self._ranks}", "--rdzv-id=tiny"),
            *(f"--rdzv-endpoint=127.0.0.1:{self._port}", str(self.training.config)),
            SLIPWAY_NODE=name,
            SLIPWAY_INCARNATION=str(INCARNATION),
        )


def is_rank(pid: int) -> bool:
    """Whether a process has the command line of a rank."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1:3] == [b"-m", b"trainer"]
    except OSError:
        return False
