"""What a person waits for: pages in a real browser, on a home with hundreds of trainings, and what is seen how soon.

    python -m benchmarks.ui [--trainings 500] [--checkpoints 20] [--sweeps 50] [--steps 1000000]
        [--only pages live report]

    pages    seconds until Dagster's catalog, the page of a training and of a sweep, the index of pages and the morning
             page show what they are opened for: each three times, the median; `slipway dev` serves them, Chromium shows
             them. Beside it the catalog of Dagster alone, with one asset and no event. Where the seconds of a page
             of Dagster go is printed with it: the last of its scripts, and the slowest of its queries
    live     seconds from a step in the ledger to the open page, and from a rank that is stopped or killed to its
             being visible on the page of its training
    report   bytes of the kept page of a training of so many steps; processor seconds of a scrape of the exporter
The records are written by the real writers, and nothing of them is put on disk at once. One JSON line a metric.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
from playwright.sync_api import Request

from benchmarks.peers import dagster_alone
from benchmarks.sensors import BY, committed, is_closed, unsynced
from slipway.assets import keys
from slipway.assets.checkpoints import checkpoint_materialization
from slipway.assets.sweeps import showing
from slipway.assets.sweeps.report import report_file as sweep_pages
from slipway.assets.sweeps.store import SweepStore, sweep_id
from slipway.deploy.embedded import instance as embedded
from slipway.operations.metrics.serve import PlatformExporter, PlatformSources
from slipway.resources import embedded as resources
from slipway.resources.home import Home
from slipway.resources.pages import page_keeper
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.trainings.store import TrainingStore, WorkQueue
from slipway.trainer.base import listing, processes
from slipway.trainer.record import fence
from slipway.trainer.record.ledger import Ledger
from tests.assets.sweeps import simulation
from tests.browser import window as browser
from tests.browser.window import Window
from tests.conftest import Marked, until
from tests.embedded.slipway import free_port
from tests.sensors.platform import SEARCH, TINY, Platform, make_home

PARTS = ("pages", "live", "report")
MARK = "SLIPWAY_BENCHMARK"
ROUNDS = 3
TRIALS = 16
"""Of each sweep."""
SCRIPTS = """() => Math.max(0, ...performance.getEntriesByType("resource")
    .filter(each => each.initiatorType === "script").map(each => each.responseEnd)) / 1000"""
"""Seconds from the begin of the navigation until the last script was there."""
PATIENCE_SECONDS = 600.0
LONG = 1_000_000_000
"""Steps of a training that does not end while it is looked at."""


@dataclass(frozen=True)
class Site:
    """A platform that is served."""

    platform: Platform
    url: str
    ended: TrainingStore
    """One of many trainings that are over."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ui", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trainings", type=int, default=500)
    parser.add_argument("--checkpoints", type=int, default=20, help="of each training")
    parser.add_argument("--sweeps", type=int, default=50, help="of 16 trials each")
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the training whose page is weighed")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="what to measure")
    options = parser.parse_args()
    program = browser.program()
    if program is None:
        parser.error(browser.NO_BROWSER)
    os.environ[MARK] = str(os.getpid())
    with tempfile.TemporaryDirectory(prefix="slipway-ui-") as folder, contextlib.redirect_stdout(sys.stderr):
        platform = furnished(Path(folder), options.trainings, options.checkpoints, options.sweeps)
        if "report" in options.only:
            report(platform, options.steps)
        if {"pages", "live"} & set(options.only):
            with served(platform) as site, browser.opened(program) as window:
                if "pages" in options.only:
                    with dagster_alone.bare(Path(folder) / "alone") as alone:
                        pages(site, window, alone)
                if "live" in options.only:
                    live(site, window)


def furnished(root: Path, trainings: int, checkpoints: int, sweeps: int) -> Platform:
    """A home with so many trainings that are over, of so many checkpoints each, and with sweeps that are over.

    All of these are partitions in Dagster; the newest checkpoint of each training, each sweep and its trials are
    materialised.
    """
    home = Home(root / "home")
    embedded.prepare(home)
    with embedded.open_storage(home) as storage, unsynced():
        make_home(root, storage)
        platform = Platform(root, storage)
        partitions = []
        for number in range(trainings):
            is_closed(platform, f"closed {number}")
        for store in platform.trainings.stores():
            for step in range(2, checkpoints + 1):
                committed(store, step)
            _steps(store, 1, checkpoints + 1)
            facts = store.read()
            storage.report_runless_asset_event(checkpoint_materialization(facts, facts.commits[-1]))
            partitions += [keys.checkpoint_partition(store.id, commit.step) for commit in facts.commits]
        platform.add(keys.checkpoint_partitions(TINY), *partitions)
        for seed in range(sweeps):
            _sweep(platform, storage, seed)
        for duty in WorkQueue:
            for id in platform.trainings.pending(duty):
                platform.trainings.close(id, duty)
    return platform


def _sweep(platform: Platform, storage: dg.DagsterInstance, seed: int) -> None:
    """A sweep that is over, with its page, as Dagster shows it."""
    plan = {"sweep": SEARCH, "seed": seed}
    opened, budget = simulation.begun(sweep=sweep_id(SEARCH, plan), seed=seed, trials=TRIALS)
    store = SweepStore(platform.home.durable / "sweeps" / opened.sweep)
    store.create(plan)
    store.append(*simulation.log_of(opened, budget, simulation.power_law))
    state = store.state()
    assert state is not None and state.closed is not None
    report_of_sweep = sweep_pages.report_of(store, state)
    sweep_pages.write(store, report_of_sweep)
    metadata = showing.metadata(report_of_sweep, store)
    storage.report_runless_asset_event(dg.AssetMaterialization(keys.key(SEARCH, "sweep"), metadata=metadata))
    trials = {f"{opened.sweep}.{number}": trial for number, trial in state.trials.items()}
    platform.add(keys.trial_partitions(SEARCH), *trials)
    for name, trial in trials.items():
        figures = {"state": trial.state, "steps": trial.last_step, **trial.parameters}
        event = dg.AssetMaterialization(keys.key(SEARCH, "trial"), partition=name, metadata=figures)
        storage.report_runless_asset_event(event)


def _steps(store: TrainingStore, first: int, end: int) -> None:
    """Steps in the ledger of a training, as rank 0 writes them."""
    ledger = Ledger(store.folder, fence.Token(1), "rank-0")
    for step in range(first, end):
        figures = {"accuracy": 0.5, "learning_rate": 1e-3, "gradient_norm": 1.25, "tokens_per_second": 1e6, "mfu": 0.4}
        ledger.write("step", step=step, loss=8.0 / step**0.1 + step % 7 / 100, seconds=0.1, **figures)
    ledger.close()


@contextlib.contextmanager
def served(platform: Platform) -> Iterator[Site]:
    """`slipway dev` on the home, in a process of its own."""
    port, home = free_port(), platform.home
    environ = {**os.environ, "SLIPWAY_HOME": str(home.root), "SLIPWAY_RECIPES": str(platform.root / "recipes")}
    environ |= {"SLIPWAY_PORT": str(port), "PYTHONPATH": str(Path.cwd())}
    output = home.root / "dev.log"
    with output.open("wb") as log:
        dev = subprocess.Popen([sys.executable, "-m", "slipway.cli", "dev"], env=environ, stdout=log, stderr=log)
    try:
        until(lambda: b"Slipway is at" in output.read_bytes(), "the instance answers", PATIENCE_SECONDS)
        ended = max(platform.trainings.stores(), key=lambda store: store.id)
        yield Site(platform, f"http://127.0.0.1:{port}", ended)
    finally:
        dev.send_signal(signal.SIGINT)
        dev.wait()
        for pid in processes.carrying({MARK: os.environ[MARK]}):
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)


def pages(site: Site, window: Window, alone: str) -> None:
    """Seconds until each page shows what it is opened for; `alone` is the address of Dagster with one asset."""
    training = "/".join(keys.key(TINY, "training").path)
    sweep = max(listing.names_if_there(site.platform.home.durable / "sweeps"), default="")
    opened = {
        "Dagster's catalog": ("/assets", "checkpoint"),
        "the catalog of Dagster alone": (f"{alone}/assets", dagster_alone.ASSET),
        "a sweep in Dagster": (f"/assets/{'/'.join(keys.key(SEARCH, 'sweep').path)}", "best_trial"),
        "a sweep's page": (f"/slipway/sweeps/{sweep}", "Best: trial"),
        "a training in Dagster": (f"/assets/{training}?view=partitions&partition={site.ended.id}", site.ended.id),
        "a training's page": (f"/slipway/trainings/{site.ended.id}", "Configuration"),
        "the index of pages": ("/slipway", "where it stands"),
        "the morning page": ("/slipway/morning", "Daily report"),
    }
    for name, (path, text) in opened.items():
        if "a sweep" in name and not sweep:
            continue
        url = path if path.startswith("http") else site.url + path
        rounds = [_load_page(window, url, text) for _ in range(ROUNDS)]
        seconds = [figures["seconds"] for figures in rounds]
        where = sorted(rounds, key=lambda figures: float(figures["seconds"]))[ROUNDS // 2]
        where = {key: value for key, value in where.items() if key != "seconds"}
        show(name, statistics.median(seconds), first=round(seconds[0], 3), **where)


def _load_page(window: Window, url: str, text: str) -> dict[str, Any]:
    """Seconds until the text is seen, and what the page waited for meanwhile."""
    queries: list[tuple[str, float]] = []

    def answered(request: Request) -> None:
        if "/graphql" in request.url:
            timing, name = request.timing, str((request.post_data_json or {}).get("operationName", "?"))
            queries.append((name, (timing["responseEnd"] - timing["requestStart"]) / 1000))

    window.page.on("requestfinished", answered)
    try:
        begun = time.perf_counter()
        window.open(url)
        loaded = time.perf_counter() - begun
        window.until_shown(text)
        seconds = time.perf_counter() - begun
    finally:
        window.page.remove_listener("requestfinished", answered)
    scripts = window.page.evaluate(SCRIPTS)
    figures = {"seconds": seconds, "loaded": round(loaded, 2), "scripts": round(scripts, 2)}
    if queries:
        name, longest = max(queries, key=lambda query: query[1])
        figures |= {"queries": len(queries), "slowest_query": name, "slowest_query_seconds": round(longest, 2)}
    return figures


def live(site: Site, window: Window) -> None:
    """Seconds from a step in the ledger to the page, and from a fault to its being visible there."""
    store = site.platform.start_training("live", run={"steps": LONG}, checkpoint={"every": 1000})
    until(lambda: store.commits(), "a checkpoint is committed", PATIENCE_SECONDS)
    window.open(f"{site.url}/slipway/trainings/{store.id}")
    status_text = window.page.locator("#standing p").first
    until(lambda: "Running, step" in status_text.inner_text(), "the page says that it runs", PATIENCE_SECONDS)
    show(
        "from a step in the ledger to the page",
        statistics.median(_lag(store, status_text.inner_text) for _ in range(5)),
    )
    [rank] = Marked({MARK: os.environ[MARK]}).running("slipway.trainer")
    os.kill(rank, signal.SIGSTOP)
    show(
        "from a stopped rank to the page",
        _seconds(lambda: _until_said(status_text.inner_text, "Hanging for")),
        aim=12.0,
    )
    os.kill(rank, signal.SIGCONT)
    _until_said(status_text.inner_text, "Running, step")
    os.kill(rank, signal.SIGKILL)
    incidents = window.page.locator("#incidents")
    killed = _seconds(lambda: _until_said(lambda: " ".join(incidents.all_inner_texts()), "killed"))
    show("from a killed rank to the page", killed, aim=12.0)
    store.want("stop", BY, "it was seen")
    until(lambda: store.exit() is not None, "it has stopped", PATIENCE_SECONDS)


def _until_said(read_text: Callable[[], str], text: str) -> None:
    until(lambda: text in read_text(), f"the page says {text!r}", PATIENCE_SECONDS)


def _lag(store: TrainingStore, read_text: Callable[[], str]) -> float:
    """Seconds since the step was written that comes into sight next."""
    before = read_text()
    until(lambda: read_text() != before, "the page goes on", PATIENCE_SECONDS)
    now, step = time.time(), int(read_text().partition("step ")[2].split()[0].replace(",", ""))
    at = next(event["t"] for event in reversed(store.events()) if event["event"] == "step" and event["step"] == step)
    return float(now - at)


def report(platform: Platform, steps: int) -> None:
    """Bytes of the kept page, and what a scrape of the exporter costs."""
    store = next(iter(platform.trainings.stores()))
    with unsynced():
        _steps(store, 100, steps)
    reader = TrainingReader(platform.home.durable)
    seconds = _seconds(lambda: page_keeper.write(reader, store))
    size = (store.folder / page_keeper.PAGE).stat().st_size
    show(f"the kept page of {steps:,} steps", size / 1e6, "MB", 1.0, seconds=round(seconds, 1))
    home = platform.home
    tiers = {"durable": home.durable, "nvme": home.nodes}
    views = PlatformSources(home.durable, tiers, lambda: resources.fleet(home), lambda: resources.node_health(home))
    exporter = PlatformExporter(views, None, False)
    exporter.text()
    begun = time.process_time()
    for _ in range(ROUNDS):
        exporter.text()
    show("a scrape of the platform, of a processor", (time.process_time() - begun) / ROUNDS, aim=1.0)


def _seconds(do: Callable[[], None]) -> float:
    begun = time.perf_counter()
    do()
    return time.perf_counter() - begun


def show(metric: str, value: float, unit: str = "s", aim: float = 5.0, **more: float | str) -> None:
    line = {"benchmark": "ui", "metric": metric, "unit": unit, "ours": round(value, 3), "aim": aim, "better": "lower"}
    print(json.dumps({**line, **more}), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
