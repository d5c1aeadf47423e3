"""From the kill of a rank to the next step: ranks that stay in their processes beside ranks that are all forked anew.

``python -m benchmarks.survivors [--kills N] [--ranks 2 4]``: one node's supervisor holds the ranks, one of which gets
SIGKILL while all train. The moments are those of the ledger: the end noticed, the ranks gone or out of their exchanges,
the new ones forked, the state handed over or restored, and the first step. Steps lost are those done again.
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
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.peers import steps
from slipway.trainer.base import atomic, journal, processes
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Layout, Recovery
from slipway.trainer.config.sections import Batch
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.record import fence, ledger

SMALL = DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
BATCH = Batch(sequences=4, length=128, micro=4)
EVERY, PATIENCE, PAUSE = 20, 180.0, 2.0
PARTS = ("detected", "ranks_gone", "ranks_ready", "met", "restored", "step")
Way = Literal["stay", "leave"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survivors")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    for ranks in options.ranks:
        with_survivors, without_survivors = (_recoveries(ranks, way, options.kills) for way in ("stay", "leave"))
        for part in (*PARTS, "lost"):
            unit = "steps" if part == "lost" else "s"
            metric = f"{ranks} ranks: steps lost" if part == "lost" else f"{ranks} ranks: kill to {part}"
            line = {"benchmark": "survivors", "metric": metric, "unit": unit, "better": "lower"}
            values = {
                "ours": with_survivors[part],
                "peers": {"all ranks forked anew": without_survivors[part]},
                "aim": None,
            }
            print(json.dumps({**line, **values}), flush=True)


def _recoveries(ranks: int, way: Way, kills: int) -> dict[str, float]:
    """The median over the kills: seconds from the kill to each moment, and the steps that were lost."""
    with tempfile.TemporaryDirectory() as name:
        settings = steps.settings(Path(name), SMALL, BATCH, Layout(), "fp32")
        checkpoint = replace(settings.checkpoint, every=EVERY)
        settings = replace(settings, checkpoint=checkpoint, recovery=Recovery(survivors=way))
        path, store = Path(name) / "config.json", Path(settings.placement.store)
        path.write_bytes(atomic.readable_json(resolved.dump(settings)))
        assert fence.claim(store, fence.Token(1), nodes=("local",), cause="a benchmark", by="benchmarks")
        host, port = _hosted()
        job = _start(path, ranks, port)
        try:
            _until_step(job, store, 0.0)
            recoveries = [_recovery(job, store) for _ in range(kills)]
        finally:
            for pid in (job.pid, *processes.descendants(job.pid), host.pid):
                os.kill(pid, signal.SIGKILL)
            job.wait()
            host.wait()
    return {part: statistics.median(recovery[part] for recovery in recoveries) for part in recoveries[0]}


def _hosted() -> "tuple[subprocess.Popen[bytes], int]":
    """The store of a job, in a process of its own, and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "slipway.resources.launchers.local.rendezvous", str(listener.fileno())]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
        return process, listener.getsockname()[1]


def _start(config: Path, ranks: int, port: int) -> "subprocess.Popen[bytes]":
    """The supervisor of a node with all ranks."""
    shape = ["--nnodes=1", f"--nproc-per-node={ranks}", "--rdzv-id=survivors", f"--rdzv-endpoint=127.0.0.1:{port}"]
    return subprocess.Popen(
        [sys.executable, "-m", "slipway.trainer.supervisor", *shape, str(config)],
        env={**os.environ, "SLIPWAY_INCARNATION": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _recovery(job: "subprocess.Popen[bytes]", store: Path) -> dict[str, float]:
    time.sleep(PAUSE)  # so that kills are not all of the first steps
    ranks = [pid for pid in processes.children(job.pid) if " -m slipway.trainer " in f"{processes.command_line(pid)} "]
    begun = time.time()
    os.kill(max(ranks), signal.SIGKILL)
    events = _until_step(job, store, begun)
    before = max(event["step"] for event in _steps(ledger.read(store), 0.0, begun))
    first = min(event["step"] for event in _steps(events, begun))
    moments = {"handed_over": "restored"}
    seconds = dict[Any, float]()
    for event in sorted(events, key=lambda entry: float(entry["t"])):
        seconds.setdefault(moments.get(event["event"], event["event"]), event["t"] - begun)
    return {**{part: seconds.get(part, 0.0) for part in PARTS}, "lost": max(0, before + 1 - first)}


def _steps(events: list[journal.JournalEvent], since: float, until: float = float("inf")) -> list[journal.JournalEvent]:
    """Steps that were done in this time; what a new rank 0 repeats of the step before took no seconds."""
    return [e for e in events if e["event"] == "step" and since < e["t"] <= until and e["seconds"]]


def _until_step(job: "subprocess.Popen[bytes]", store: Path, since: float) -> list[journal.JournalEvent]:
    """The events since then, once a generation that began since has done a step."""
    deadline = time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline and job.poll() is None, "the job does not come back"
        events = [event for event in ledger.read(store) if event["t"] > since]
        rendezvous_at = min((event["t"] for event in events if event["event"] == "met"), default=float("inf"))
        if _steps(events, rendezvous_at):
            return [e for e in events if e["event"] != "step" or (e["t"] > rendezvous_at and e["seconds"])]
        time.sleep(0.05)


if __name__ == "__main__":
    main()
