"""From source files to shards: how much text a CPU-second takes through the dataset lane, beside what else does it.

``python -m benchmarks.data [--megabytes N] [--folder FOLDER --include GLOB] [--peers-python PYTHON]``: copies N MB of
the Python packages that are installed here, or of the files below FOLDER; makes documents and snapshot of them in
processes of their own with every rule, mask and decontamination on, with a tokenizer that is there already; changes
1 % of the files and makes them again. PYTHON has `datasets` or `datatrove`, which do the same work (benchmarks/peers).
CPU-seconds are user and system time of all processes, from the first call to the last, without the import of libraries
by the one that builds.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from typing import Any

import pyarrow as pa

from slipway.assets.datasets.cleaning.cleaner import Cleaner
from slipway.assets.datasets.documents import document_table
from slipway.assets.datasets.reading.opened_file import OpenedFile
from slipway.assets.datasets.texts import steps, tokenizer, tokens
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import shards

RULES = {
    "words_at_least": 5,
    "words_at_most": 1_000_000,
    "curly_brackets_at_most": 100_000,
    "lorem_ipsum_at_most": 100,
    "symbols_per_word_at_most": 5.0,
    "mean_word_length_at_least": 2.0,
    "mean_word_length_at_most": 40.0,
    "alphabetic_words_at_least": 0.1,
    "bullet_lines_at_most": 0.95,
    "ellipsis_lines_at_most": 0.5,
    "punctuated_lines_at_least": 0.0,
    "short_lines_at_most": 1.0,
    "duplicate_lines_at_most": 0.9,
    "duplicate_paragraphs_at_most": 0.9,
    "stop_words_at_least": 1,
    "top_2gram_at_most": 0.6,
    "duplicate_5grams_at_most": 0.95,
}
"""Every rule asked of nearly every document: thresholds that few of them break, so that no work is spared."""
MASKS = ("email", "ip", "secret")
BESIDE = {"datasets.map": 2, "datatrove": 3}
"""The aims beside other libraries: times as much text in a CPU-second."""
OLD = 1_700_000_000
"""When all files seem to have been written: long ago, so that no build waits for them to be still."""
SAMPLE_SECONDS = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data")
    parser.add_argument("--megabytes", type=int, default=80, help="of text to build from")
    parser.add_argument("--folder", type=Path, default=Path(sysconfig.get_path("purelib")))
    parser.add_argument("--include", default="*.py", help="which files below the folder")
    parser.add_argument("--peers-python", help="a Python that has datasets and tokenizers, or datatrove")
    parser.add_argument("--peers", nargs="*", default=["datasets.map"], help="datasets.map, datatrove (minutes)")
    options = parser.parse_args()
    peers = options.peers if options.peers_python else []
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        size = _copy(options.folder, options.include, options.megabytes * 1e6, home / "corpus")
        _train(home)
        for near in (False, True):
            _measure(home, size, near, [] if near else peers, options.peers_python)
        _stages(home)


def _copy(folder: Path, include: str, most: float, corpus: Path) -> float:
    """Copy files, in the order of a hash of their names, until there are so many bytes; gives the megabytes."""
    size = 0
    for path in sorted(folder.rglob(include), key=lambda path: hashlib.md5(str(path).encode()).digest()):
        if path.is_file() and path.stat().st_size and size < most:
            target = corpus / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            os.utime(target, (OLD, OLD))
            size += target.stat().st_size
    return size / 1e6


def _change(corpus: Path) -> None:
    """Every hundredth file has another line at its end."""
    for path in sorted(path for path in corpus.rglob("*") if path.is_file())[::100]:
        with path.open("ab") as file:
            file.write(b"\nchanged\n")
        os.utime(path, (OLD + 1, OLD + 1))


def _recipe(home: Path, near: bool) -> DatasetRecipe:
    trained = home / "tokenizer.json"
    return DatasetRecipe.model_validate(
        {
            "name": "corpus",
            "source": {"kind": "directory", "path": str(home / "corpus")},
            "cleaning": {"rules": RULES, "mask": MASKS, **({} if near else {"near_duplicates": None})},
            "tokenizer": {"vocab_size": 8192, "megabytes": 20.0, "file": str(trained) if trained.exists() else None},
            "shards": {"tokens": 1_000_000},
        }
    )


@dataclass
class Cost:
    """What a build took: CPU-seconds, seconds, and megabytes of memory."""

    cpu: float
    wall: float
    largest: float = 0.0
    """Of the largest process."""
    together: float = 0.0
    """Of all processes at one moment, shared pages once."""


def _train(home: Path) -> None:
    """Train the tokenizer that all builds use."""
    recipe, durable = _recipe(home, near=False), home / "first"
    steps.make_documents(recipe, durable)
    begun = _cpu()
    record = shards.TokenizerRecord(**steps.make_tokenizer(recipe, durable).result)
    _print("training the tokenizer on 20 MB, apart from all below", "CPU-s", "lower", _cpu() - begun)
    (home / "tokenizer.json").write_bytes(tokenizer.read(durable, record.sha256))
    shutil.rmtree(durable)


def _measure(home: Path, size: float, near: bool, libraries: list[str], python: str) -> None:
    """Build from nothing and after a change, and print what it took."""
    corpus, durable = home / "corpus", home / "durable"
    full = _with_memory(_built, home, near)
    peers = _peers(home, libraries, python)
    shutil.copytree(corpus, home / "as it was")
    _change(corpus)
    again = _with_memory(_built, home, near)
    shutil.rmtree(corpus)
    (home / "as it was").rename(corpus)
    shutil.rmtree(durable)
    how = f"{size:.0f} MB, near-duplicates {'on' if near else 'off'}"
    rates = {name: size / cost.cpu for name, cost in peers.items()}
    _print(f"from source to shards, {how}", "MB/CPU-s", "higher", size / full.cpu, rates, None if near else 5)
    for name, rate in rates.items():
        _print(
            f"from source to shards, {how}, beside {name}", "times", "higher", size / full.cpu / rate, {}, BESIDE[name]
        )
    _print(f"wall time, {how}", "s", "lower", full.wall, {name: cost.wall for name, cost in peers.items()})
    for what, of in (("the largest process", "largest"), ("all processes together", "together")):
        others = {name: getattr(cost, of) for name, cost in peers.items()}
        _print(f"peak memory of {what}, {how}", "MB", "lower", getattr(full, of), others, 1000)
    _print(f"again after 1 % of the files changed, {how}", "CPU-s", "lower", again.cpu)
    _print(f"again after 1 % of the files changed, {how}", "share of the full", "lower", again.cpu / full.cpu, {}, 0.05)


def _built(home: Path, near: bool) -> Cost:
    """Make documents and snapshot in this process and its workers."""
    recipe, durable = _recipe(home, near), home / "durable"
    pa.array([0])  # the first array imports pandas, if it is there
    begun, cpu = time.perf_counter(), _cpu()
    steps.make_documents(recipe, durable)
    wall, used = time.perf_counter() - begun, _cpu() - cpu
    steps.make_tokenizer(recipe, durable)
    begun, cpu = time.perf_counter(), _cpu()
    steps.make_snapshot(recipe, durable)
    return Cost(used + _cpu() - cpu, wall + time.perf_counter() - begun)


def _cpu() -> float:
    """User and system time of this process and of those that it started and that have ended."""
    return sum(used.ru_utime + used.ru_stime for used in map(getrusage, (RUSAGE_SELF, RUSAGE_CHILDREN)))


def _with_memory(build: Callable[..., Cost], *arguments: Any) -> Cost:
    """What `build` gives in a process of its own, with the memory of it and of the processes below it."""
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        pid = executor.submit(os.getpid).result()
        with _memory(pid) as peak:
            cost = executor.submit(build, *arguments).result()
    cost.largest, cost.together = peak.largest, peak.together
    return cost


@dataclass
class _Peak:
    largest: float = 0.0
    together: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)


@contextmanager
def _memory(pid: int) -> Iterator[_Peak]:
    """Looks all the while at what the process and all below it hold in memory."""
    peak = _Peak()

    def look() -> None:
        while not peak.ended.wait(SAMPLE_SECONDS):
            sizes = [_megabytes(member) for member in _family(pid)]
            peak.largest, peak.together = max(peak.largest, *sizes), max(peak.together, sum(sizes))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        peak.ended.set()
        thread.join()


def _family(pid: int) -> list[int]:
    """A process and all below it."""
    pids = [pid]
    for pid_of_parent in pids:
        for listed in Path(f"/proc/{pid_of_parent}/task").glob("*/children"):
            try:
                pids += map(int, listed.read_text().split())
            except OSError:
                continue
    return pids


def _megabytes(pid: int) -> float:
    """What a process holds, its part of what it shares with others (PSS); nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1e3 for line in lines if line.startswith("Pss:")), 0.0)


def _stages(home: Path) -> None:
    """The share of each stage in the CPU time of a build in one process, whose functions are timed as they run."""
    executor = ProcessPoolExecutor(1, get_context("spawn"))
    with executor:
        times = executor.submit(_timed_build, home).result()
    for stage, seconds in times.items():
        _print(f"{stage}: share of the CPU time of one process", "share", "lower", seconds / sum(times.values()))


def _timed_build(home: Path) -> dict[str, float]:
    """CPU-seconds of each stage, those of the stages inside it left out."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    times = dict.fromkeys(("reading", "cleaning", "encoding", "comparing", "packing and writing"), 0.0)
    running = ["packing and writing"]
    since = time.process_time()

    def turn() -> None:
        nonlocal since
        times[running[-1]] += time.process_time() - since
        since = time.process_time()

    def timed(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            turn()
            running.append(stage)
            try:
                return function(*arguments, **named)
            finally:
                turn()
                running.pop()

        return run

    def read(opened: OpenedFile[Any]) -> Iterator[Any]:
        documents = iterate(opened)
        following = timed("reading", lambda: next(documents, None))
        while (document := following()) is not None:
            yield document

    iterate = OpenedFile.__iter__
    OpenedFile.__iter__ = read  # type: ignore[method-assign]
    Cleaner.clean = timed("cleaning", Cleaner.clean)  # type: ignore[method-assign]
    document_table.write = timed("comparing", document_table.write)
    tokens._encode = timed("encoding", tokens._encode)
    _built(home, near=False)
    turn()
    return times


def _peers(home: Path, libraries: list[str], python: str) -> dict[str, Cost]:
    """What each library that the Python has takes for the same work."""
    script = str(Path(__file__).parent / "peers" / "data.py")
    costs: dict[str, Cost] = {}
    for name in libraries:
        command = [python, script, name, str(home / "corpus"), str(home / "tokenizer.json"), str(home / "peer")]
        process = subprocess.Popen([*command, str(len(os.sched_getaffinity(0)))], stdout=subprocess.PIPE, text=True)
        with process, _memory(process.pid) as peak:
            assert process.stdout is not None
            output = process.stdout.read()
        shutil.rmtree(home / "peer", ignore_errors=True)
        if process.returncode:
            print(f"data: without {name}: {python} has it not", file=sys.stderr)
        else:
            measured = json.loads(output.splitlines()[-1])
            print(f"data: {name}: {measured}", file=sys.stderr)
            costs[name] = Cost(measured["cpu"], measured["wall"], peak.largest, peak.together)
    return costs


def _print(
    metric: str,
    unit: str,
    better: str,
    value: float,
    peers: dict[str, float] | None = None,
    aim: float | None = None,
) -> None:
    line = {"benchmark": "data", "metric": metric, "unit": unit, "better": better}
    print(json.dumps({**line, "ours": value, "peers": peers or {}, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
