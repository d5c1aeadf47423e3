"""Tracking: what it costs a step, what is lost when trainings are killed and MLflow is away, and what a tick costs.

    python -m benchmarks.tracking [--only step kills outage ticks] [--kills 20] [--runs 5000]

    step      what the training's own thread spends on recording a step and its node, against a step of a second and of
              a tenth of it; and the processor's time of the threads beside it
    kills     a real training is killed with SIGKILL again and again; every step up to its last checkpoint must be in
              MLflow, once
    outage    a real MLflow server is killed; an hour's steps (one a second) are recorded and delivered once it
              is back
    ticks     a tick of the sensor that delivers, with so many runs on record, with nothing new and with ten trainings
              that have ten new steps each; in seconds and in seconds of the processor
One JSON line a metric.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import dagster as dg
import torch

from benchmarks.sensors import BY, unsynced
from slipway.resources.mlflow.ledger_delivery import ShippedLedger
from slipway.resources.mlflow.tracking import STEP_METRICS, Delivery, Tracking
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import processes
from slipway.trainer.metrics.node_usage import EVERY_SECONDS, NodeUsage
from slipway.trainer.metrics.usage import Usage
from slipway.trainer.record import fence, ledger
from slipway.trainer.record.phases import TRAINING
from slipway.trainer.record.recorder import RankRecorder
from tests.conftest import until
from tests.sensors.platform import TINY, Platform, make_home

PARTS = ("step", "kills", "outage", "ticks")
HOUR = 3600
FIGURES = {name: 1.2345678 for name in STEP_METRICS if name not in ("gpu_use", "gpu_memory", "mfu")}
"""What a step on a CPU records."""
MARK = "SLIPWAY_BENCHMARK"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tracking", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--runs", type=int, default=5000, help="runs in MLflow for the ticks")
    options = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", MARK: str(os.getpid())}
    for part in options.only:
        with tempfile.TemporaryDirectory(prefix="slipway-tracking-") as folder, contextlib.ExitStack() as stack:
            root = Path(folder)
            (root / "dagster").mkdir()
            instance = stack.enter_context(dg.instance_for_test(temp_dir=str(root / "dagster")))
            if part == "step":
                a_step(root)
            elif part == "kills":
                kills(built_platform(root, instance), options.kills)
            elif part == "outage":
                outage(built_platform(root, instance), stack)
            else:
                ticks(built_platform(root, instance), options.runs)


def built_platform(root: Path, instance: dg.DagsterInstance) -> Platform:
    with contextlib.redirect_stdout(sys.stderr), unsynced():
        make_home(root, instance)
    return Platform(root, instance)


def a_step(root: Path, steps: int = 2000) -> None:
    """The share of a step that recording takes."""
    usage, own, node = Usage(torch.device("cpu")), [], NodeUsage(root)
    with RankRecorder(root, fence.Token(1), 0) as recorder:
        recorder.enter(TRAINING, 0)
        recorder.flush()
        before = time.process_time() - time.thread_time()
        for step in range(1, steps + 1):
            begun = time.perf_counter()
            recorder.record("step", step=step, samples=step, tokens=step, **(FIGURES | usage.read()))
            own.append(time.perf_counter() - begun)
            time.sleep(0.002)  # a step, in which the threads beside it write
        recorder.flush()
        beside = (time.process_time() - time.thread_time() - before) / steps
    readings = [_timed(node.read) for _ in range(200)]
    median = statistics.median(own)
    show("recording a step, the training's thread", "microseconds", median * 1e6, None)
    show("recording a step, the writing thread", "CPU-microseconds", beside * 1e6, None)
    show("reading a node's usage, beside the steps", "microseconds", statistics.median(readings) * 1e6, None)
    for seconds in (1.0, 0.1):
        share = (statistics.mean(own) + statistics.mean(readings) * seconds / EVERY_SECONDS) / seconds
        show(f"share of a step of {seconds:g} s", "share", share, 0.001)


def _timed(call: Any) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def kills(platform: Platform, times: int) -> None:
    """Metrics of steps that are missing in MLflow after a training was killed so many times."""
    store = platform.start_training(
        "killed", run={"steps": 10_000_000}, checkpoint={"every": 20}, batch={"sequences": 64}
    )
    platform.advance(store, Action.SUBMIT)
    for number in range(times):
        _until_next_commit(store, f"a checkpoint before kill {number}")
        platform.tracking.ship(store, TINY, {})
        for pid in processes.carrying({MARK: str(os.getpid())}):
            with contextlib.suppress(OSError):
                if "trainer" in Path(f"/proc/{pid}/cmdline").read_text() and pid != os.getpid():
                    os.kill(pid, signal.SIGKILL)
        until(lambda: platform.control.advance(store, BY) is Action.SUBMIT, "the next start", 300)
    _until_next_commit(store, "the last checkpoint")
    store.want("stop", BY, "the benchmark is over")
    until(lambda: platform.control.advance(store, BY) is Action.DONE, "the end", 300)
    until(lambda: platform.tracking.ship(store, TINY, {}) is Delivery.COMPLETE, "the last delivery", 300)
    reached = store.commits()[-1].step
    there = _history(platform.tracking, store)
    lost = set(range(1, reached + 1)) - set(there)
    show(f"steps without their metrics after {times} kills, of {reached} steps", "steps", len(lost), 0)
    written = [event for event in ledger.read(store.folder) if event["event"] == "step"]
    twice = len(there) - len({(event["step"], int(event["t"] * 1000)) for event in written})
    show("metrics that MLflow has more than once", "metrics", twice, 0)


def _until_next_commit(store: TrainingStore, what: str) -> None:
    known = len(store.commits())
    until(lambda: len(store.commits()) > known, what, 300)


def outage(platform: Platform, stack: contextlib.ExitStack) -> None:
    """Metrics that are missing after MLflow's server was away for an hour's steps."""
    store = platform.proposed("an hour")
    assert store.claim(1, ("node-0",), "first start", BY)
    address = f"http://127.0.0.1:{_free_port()}"
    tracking, server = Tracking(uri=address), _server(platform.home.root, address)
    stack.callback(lambda: _end(server))
    with RankRecorder(store.folder, fence.Token(1), 0) as recorder:
        for step in range(1, 11):
            recorder.record("step", step=step, **FIGURES)
        recorder.flush()
        tracking.ship(store, TINY, {})
        _end(server)
        refused = 0
        for step in range(11, HOUR + 11):
            recorder.record("step", step=step, **FIGURES)
            if step % 600 == 0:
                with contextlib.suppress(Exception):
                    tracking.ship(store, TINY, {})
                    refused -= 1
                refused += 1
    show("deliveries that were tried while the server was away", "deliveries", refused, None)
    server = _server(platform.home.root, address)
    stack.callback(lambda: _end(server))
    begun = time.perf_counter()
    while tracking.ship(store, TINY, {}) is Delivery.IN_PART:
        pass
    show(f"delivery of {HOUR} steps, {HOUR * len(FIGURES)} metrics", "s", time.perf_counter() - begun, None)
    there = _history(tracking, store)
    show("metrics lost in an hour's outage", "metrics", HOUR + 10 - len(set(there)), 0)
    show("metrics that MLflow has more than once after it", "metrics", len(there) - len(set(there)), 0)


def ticks(platform: Platform, runs: int) -> None:
    """A tick with few and with many runs on record, with nothing new and with ten trainings' new steps."""
    _ticks(platform, 0)
    with unsynced():
        for number in range(runs):
            store = platform.proposed(f"over {number}")
            store.want("run", BY, "a benchmark")
            assert store.claim(1, ("node-0",), "first start", BY)
            store.record_exit(1, "succeeded", "all steps done", BY)
    _runs(platform, runs)
    _ticks(platform, runs)


def _runs(platform: Platform, number: int) -> None:
    """So many more runs in MLflow's database: copies of the rows of one, as its client makes one in 20 ms."""
    client = platform.tracking.client()
    run = client.create_run(client.create_experiment("old"), run_name="old", tags={"slipway.training": "old"})
    with contextlib.closing(sqlite3.connect(platform.home.root / "mlflow.db")) as database, database:
        for table in ("runs", "tags"):
            cursor = database.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", [run.info.run_id])
            names, rows = [name for name, *_ in cursor.description], cursor.fetchall()
            index, marks = names.index("run_uuid"), ", ".join("?" * len(names))
            copies = ([*row[:index], f"{copy:032x}", *row[index + 1 :]] for copy in range(number - 1) for row in rows)
            database.executemany(f"INSERT INTO {table} VALUES ({marks})", copies)


def _ticks(platform: Platform, runs: int) -> None:
    growing = [platform.start_training(f"growing {runs} {number}") for number in range(10)]
    for store in growing:
        assert store.claim(1, ("node-0",), "first start", BY)
    for _ in range(3):  # makes their runs
        platform.apply("metrics_shipping")
    _show_tick(f"tick with {runs} runs, nothing new", [_tick_seconds(platform) for _ in range(5)])
    taken = []
    for round_ in range(3):
        for store in growing:
            segment = ledger.Ledger(store.folder, fence.Token(1), "rank-0")
            for step in range(10 * round_ + 1, 10 * round_ + 11):
                segment.write("step", step=step, **FIGURES)
            segment.close()
        taken.append(_tick_seconds(platform))
    assert all(ShippedLedger.of(store).offsets for store in growing)
    _show_tick(f"tick with {runs} runs, 10 trainings with 10 new steps each", taken)


def _tick_seconds(platform: Platform) -> tuple[float, float]:
    """Of a tick: seconds, and those of the processor."""
    begun, used = time.perf_counter(), time.process_time()
    platform.apply("metrics_shipping")
    return time.perf_counter() - begun, time.process_time() - used


def _show_tick(metric: str, taken: list[tuple[float, float]]) -> None:
    """The least of each: other work on the machine makes a tick no shorter."""
    for unit, values in zip(("s", "CPU-s"), zip(*taken, strict=True), strict=True):
        show(metric, unit, min(values), None)


def _history(tracking: Tracking, store: TrainingStore) -> list[int]:
    """The step of every loss that MLflow has."""
    client, run, token, history = tracking.client(), tracking.run_of(store), None, list[int]()
    while True:
        page = client._tracking_client.store.get_metric_history(run, "loss", max_results=25_000, page_token=token)
        history += [metric.step for metric in page]
        token = getattr(page, "token", None)
        if not token:
            return history


def _server(root: Path, address: str) -> subprocess.Popen[bytes]:
    """MLflow's own server over the database of the home, once it answers."""
    host, port = address.removeprefix("http://").split(":")
    command = [sys.executable, "-m", "mlflow", "server", "--host", host, "--port", port, "--workers", "1"]
    database = [
        "--backend-store-uri",
        f"sqlite:///{root}/mlflow.db",
        "--artifacts-destination",
        str(root / "artifacts"),
    ]
    started = subprocess.Popen([*command, *database], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               start_new_session=True)  # fmt: skip
    until(lambda: _answers(host, int(port)), "MLflow's server", 300)
    return started


def _answers(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
        return True
    return False


def _end(server: subprocess.Popen[bytes]) -> None:
    """Kill the server with all its workers."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def show(metric: str, unit: str, value: float, aim: float | None) -> None:
    line = {"benchmark": "tracking", "metric": metric, "unit": unit, "better": "lower", "ours": round(value, 7)}
    print(json.dumps({**line, "peers": {}, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
