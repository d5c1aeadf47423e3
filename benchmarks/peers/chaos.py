"""The peer of `benchmarks.chaos`: the script `benchmarks/peers/restart.py` under plain torchrun, with the same faults.

Two agents of one rank, one a node, with short time-outs and as many restarts as it takes. Nobody starts an agent again
that was killed, as nobody would without a platform. A fault that this job has no part for (a keeper, a supervisor's
store, Dagster) does not happen to it, which is in its favour.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from slipway.operations.chaos import sockets
from slipway.operations.chaos.schedule import PlannedFault
from slipway.trainer.base import processes

CODE = Path(__file__).parents[2]
EVERY = 25
"""Steps between two saves, as ours."""
SIZES = ("2", "64", "128", "512", str(EVERY))
"""Layers, width, length, vocabulary, and steps between saves: of about the size of ours."""
PATIENCE = 120.0


class Peer:
    """One job under torchrun."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self._port: int = listener.getsockname()[1]
        self._agents = [self._agent()]
        self._until(lambda: _listens(self._port))
        self._agents.append(self._agent())
        self._until(lambda: self.steps() > 2 * EVERY)

    def share(self, planned: Sequence[PlannedFault], seconds: float, undisturbed: float) -> float:
        """Saved steps, of those that the undisturbed pace would have given in that time."""
        first, begun = self.steps(), time.monotonic()
        time.sleep(undisturbed)
        pace = (self.steps() - first) / (time.monotonic() - begun)
        before, begun = self.saved(), time.monotonic()
        for fault in planned:
            time.sleep(max(0.0, begun + fault.at - time.monotonic()))
            self._do(fault)
        time.sleep(max(0.0, begun + seconds - time.monotonic()))
        return (self.saved() - before) / (pace * (time.monotonic() - begun))

    def steps(self) -> int:
        return len(self._marks("step"))

    def saved(self) -> int:
        """The steps that count in the end: those before the last save."""
        return EVERY * len(self._marks("saved"))

    def close(self) -> None:
        for agent in self._agents:
            processes.kill_tree(agent.pid)
            agent.wait()

    def _do(self, fault: PlannedFault) -> None:
        agents = [agent for agent in self._agents if agent.poll() is None]
        ranks = [rank for agent in agents for rank in processes.children(agent.pid)]
        if not agents or not ranks:
            return
        choice = random.Random(fault.draw)
        agent, rank = choice.choice(agents), choice.choice(ranks)
        match fault.fault:
            case "rank-killed" | "rank-crashed" | "rank-stopped":
                os.kill(rank, _signal(fault))
            case "two-ranks-killed" | "killed-in-recovery" | "checkpoint-damaged":
                for pid in ranks:
                    os.kill(pid, signal.SIGKILL)
            case "supervisor-killed" | "supervisor-crashed" | "supervisor-stopped":
                agent.send_signal(_signal(fault))
            case "node-killed":
                processes.kill_tree(agent.pid)
            case "first-node-killed":
                processes.kill_tree(agents[0].pid)
            case "network-cut":
                for connection in sockets.connections([rank]):
                    sockets.end(connection)

    def _agent(self) -> "subprocess.Popen[bytes]":
        environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CODE)}
        tuned = "--rdzv-conf=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3"
        rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self._port}", "--rdzv-id=peer", tuned]
        shape = ["--nnodes=1:2", "--nproc-per-node=1", "--max-restarts=1000", "--monitor-interval=0.05"]
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--local-addr=127.0.0.1", *rendezvous, *shape),
                *(str(CODE / "benchmarks" / "peers" / "restart.py"), str(self._folder), *SIZES),
            ],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _marks(self, name: str) -> list[float]:
        path = self._folder / "marks.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        marks = [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]
        return [float(mark["t"]) for mark in marks if mark["mark"] == name]

    def _until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "the peer does not start"
            time.sleep(0.1)


def _signal(fault: PlannedFault) -> signal.Signals:
    what = fault.fault.rpartition("-")[2]
    return {"killed": signal.SIGKILL, "crashed": signal.SIGSEGV, "stopped": signal.SIGSTOP}[what]


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
