"""From a kill to the next step, through the real launcher with two nodes of a rank each: ours beside torchrun.

``python -m benchmarks.restart [--kills N] [--cases CASE,...] [--ray PYTHON]``.

Cases: ``rank`` (a rank is sent SIGKILL), ``node`` (all processes of the second node are), ``first node`` (of the node
of rank 0). Ours saves every few steps as the peer does, and keeps the state of each step in the memory of the nodes:
steps lost are those done again. The peer is a bare DDP script of about the same size that saves every few steps,
under torchrun with its defaults and with short time-outs, both with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1; without it
gloo does not find its peers again. Of a job whose first node is gone, torchrun brings nothing back, as that node has
hosted its store. With ``--ray``, the interpreter of an environment with Ray and PyTorch, the same script runs under Ray
Train too, on a cluster of a head and two nodes (`benchmarks.peers.ray_restart`).

The parts are those of the ledger: until the death was seen, the old ranks were gone, new ones were forked, they had
met, had built the model, had the state again, and had done a step.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from benchmarks.peers import steps
from slipway.resources.fleet import embedded
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.fleet.protocol import NODE_VARIABLE
from slipway.resources.launchers.environment import JOB_VARIABLE
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.launchers.protocol import Job
from slipway.trainer.base import processes
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.record import fence, ledger
from slipway.trainer.record.fence import Token

EVERY, PATIENCE = 5, 240.0
NODES = ("node-0", "node-1")
SMALL = DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
BATCH = Batch(sequences=4, length=128, micro=4)
PARTS = {
    "detected": "detected",
    "ranks_gone": "old ranks gone",
    "ranks_ready": "new ranks forked",
    "met": "met",
    "started": "model built",
    "restored": "restored",
    "stepped": "stepped",
}
"""The events of the ledger that end each part."""
LOST = "steps lost"
CASES = {"rank": 1.0, "node": 5.0, "first node": 5.0}
"""By case, the aim in seconds."""
TUNED = ("--monitor-interval=0.05",)
TUNED_MEETING = ("--rdzv-conf=last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=3",)
CODE = Path(__file__).parents[1]

Parts = dict[str, float]
Value = TypeVar("Value")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ray", metavar="PYTHON", help="the interpreter of an environment with Ray and PyTorch")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # its jobs end with it
    with tempfile.TemporaryDirectory() as name:
        for case in options.cases.split(","):
            folder = Path(name) / case.replace(" ", "-")
            parts_of_ours = _median([_our_recovery(folder / str(number), case) for number in range(options.kills)])
            peers = _peers(folder, case, options.ray)
            _print(f"{case} killed, to the next step", sum(parts_of_ours[part] for part in PARTS), peers, CASES[case])
            for part, name in PARTS.items():
                _print(f"{case} killed: {name}", parts_of_ours[part], {}, None)
            _print(f"{case} killed: {LOST}", parts_of_ours[LOST], {}, 0.0 if case == "rank" else None, "steps")


def _our_recovery(folder: Path, case: str) -> Parts:
    """Train by the embedded launcher, kill, and wait for a step; seconds of each part, and the steps lost."""
    folder.mkdir(parents=True)
    settings = steps.settings(folder, SMALL, BATCH, Layout(), "fp32")
    storage = replace(settings.storage, memory_steps=1)
    settings = replace(settings, checkpoint=replace(settings.checkpoint, every=EVERY), storage=storage)
    store = Path(settings.placement.store)
    fleet = EmbeddedFleet(folder / "nodes", NODES, reboot_seconds=3600)
    launcher = LocalLauncher(folder / "jobs", CODE, fleet)
    assert fence.claim(store, Token(1), nodes=NODES, cause="a benchmark", by="a benchmark")
    environment = {"SLIPWAY_INCARNATION": "1", "OMP_NUM_THREADS": "1"}
    config = resolved.dump(settings)
    job = Job("restart-i1", ("python", "-m", "slipway.trainer"), config, NODES, least=1, environment=environment)
    launcher.submit(job)
    try:
        _until(lambda: fence.commits(store), "the first checkpoint")
        begun = _kill(case, job, fleet)
        return _parts(begun, _until(lambda: _moments(store, begun), "the next step")) | _lost(store, begun)
    finally:
        launcher.cancel(job.name, grace_seconds=0)
        _until(lambda: launcher.poll(job.name).state.terminal, "the end of the job")


def _kill(case: str, job: Job, fleet: EmbeddedFleet) -> float:
    """When it was done."""
    if case != "rank":
        begun = time.time()
        embedded.kill(fleet.folder, NODES[case == "node"])
        return begun
    of_node = processes.carrying({JOB_VARIABLE: job.name, NODE_VARIABLE: NODES[1]})
    [rank] = [pid for pid in of_node if _arguments(pid)[1:3] == ["-m", "slipway.trainer"]]
    begun = time.time()
    os.kill(rank, signal.SIGKILL)
    return begun


def _moments(store: Path, begun: float) -> Parts | None:
    """When each part was over, None before the last one was."""
    events = [event for event in ledger.read(store) if event["event"] in PARTS and event["t"] > begun]
    moments = {event["event"]: float(event["t"]) for event in events}
    return moments if "stepped" in moments else None


def _parts(begun: float, moments: Parts) -> Parts:
    seconds, before = {}, begun
    for part in PARTS:
        at = max(before, moments.get(part, before))
        seconds[part], before = at - before, at
    return seconds


def _lost(store: Path, begun: float) -> Parts:
    """How many steps were done again."""
    events = [event for event in ledger.read(store) if event["event"] in ("step", "restored")]
    done = max((event["step"] for event in events if event["event"] == "step" and event["t"] <= begun), default=0)
    restored_step = max(
        (event["step"] for event in events if event["event"] == "restored" and event["t"] > begun), default=0
    )
    return {LOST: max(0, done - restored_step)}


def _peers(folder: Path, case: str, ray: str | None) -> dict[str, float | None]:
    if case == "first node":
        return {"torchrun, default": None, "torchrun, tuned": None}
    nodes = 2 if case == "node" else 1
    tuned = [*TUNED, *(TUNED_MEETING if nodes == 2 else ())]
    return {
        "torchrun, default": _torchrun(folder / "default", nodes, []),
        "torchrun, tuned": _torchrun(folder / "tuned", nodes, tuned),
        **({"Ray Train": _ray(ray, folder / "ray", case)} if ray else {}),
    }


def _ray(interpreter: str, folder: Path, case: str) -> float:
    """Train the same script under Ray Train; seconds from the kill to a step."""
    folder.mkdir(parents=True)
    script = CODE / "benchmarks" / "peers" / "ray_restart.py"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [interpreter, str(script), case, str(folder), *_sizes()]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


def _sizes() -> list[str]:
    """Layers, width, length, vocabulary, and steps between saves, for the peers' script."""
    return [str(size) for size in (SMALL.layers, SMALL.width, BATCH.length, steps.VOCABULARY, EVERY)]


def _torchrun(folder: Path, nodes: int, options: Sequence[str]) -> float:
    """Train a bare script by one agent of two ranks, or by two agents of one; seconds from the kill to a step."""
    folder.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    agents = [_agent(folder, nodes, options, port)]
    try:
        if nodes == 2:
            _until(lambda: _listens(port), "the peer's store")
            agents.append(_agent(folder, nodes, options, port))
        _until(lambda: len(_steps(folder, 0.0)) > 2 * EVERY, "steps of the peer")
        begun = time.time()
        victim = agents[-1].pid if nodes == 2 else max(processes.children(agents[0].pid))
        processes.kill_tree(victim)
        return _until(lambda: _steps(folder, begun + 0.5), "the next step of the peer")[0] - begun
    finally:
        for agent in agents:
            processes.kill_tree(agent.pid)
            agent.wait()


def _agent(folder: Path, nodes: int, options: Sequence[str], port: int) -> "subprocess.Popen[bytes]":
    rendezvous = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-id=peer"]
    shape = [f"--nnodes=1:{nodes}" if nodes > 1 else "--nnodes=1", f"--nproc-per-node={2 // nodes}"]
    environment = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CODE)}
    script = str(CODE / "benchmarks" / "peers" / "restart.py")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--local-addr=127.0.0.1", "--max-restarts=9"),
            *(*rendezvous, *shape, *options, script, str(folder), *_sizes()),
        ],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _steps(folder: Path, since: float) -> list[float]:
    """When the peer did its steps."""
    path = folder / "marks.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    marks = [json.loads(line) for line in lines if line.endswith("\n")]
    return [float(mark["t"]) for mark in marks if mark["mark"] == "step" and mark["t"] > since]


def _until(probe: Callable[[], Value | None], what: str) -> Value:
    deadline = time.monotonic() + PATIENCE
    while not (value := probe()):
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s in vain for {what}"
        time.sleep(0.05)
    return value


def _arguments(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return []


def _median(recoveries: Sequence[Parts]) -> Parts:
    return {part: statistics.median(recovery[part] for recovery in recoveries) for part in (*PARTS, LOST)}


def _print(metric: str, value: float, peers: dict[str, float | None], aim: float | None, unit: str = "s") -> None:
    line = {"benchmark": "restart", "metric": metric, "unit": unit, "better": "lower"}
    print(json.dumps({**line, "ours": round(value, 3), "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
