"""A dataset on the cluster of Dask: what two workers gain over one, its cost on small data, and its memory.

``python -m benchmarks.engine [--megabytes N ...] [--engines NAME ...] [--unit N]``: makes a corpus of N MB from the
sources of installed Python packages, again and again with some words exchanged; builds it in one process, and with one
and with two workers in processes of their own beside their scheduler, each time from nothing; the bytes must be the
same. What two workers gain stands beside what this machine gives two builds that share nothing. Memory is the most that
one process held at any time (VmHWM): two sizes show whether it grows with the corpus.

    python -m benchmarks.engine --megabytes 10000 --engines "two workers" --folder FOLDER

builds 10 GB with two workers under 2 GB each. FOLDER needs space for 40 GB. On two processors it takes half an hour:
the corpus is written in six minutes, and built in 25.
"""

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.documents import extraction
from slipway.assets.datasets.texts import steps, tokenizer
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import shards
from tests.assets.datasets import dask

OLD = 1_700_000_000
"""When all files seem to have been written: long ago, so that no build waits for them to be still."""
ENGINES = {"one process": 0, "one worker": 1, "two workers": 2}
"""How many workers beside the process that builds; without one it does all itself."""
MOST_ALONE = 128.0
"""Megabytes of the corpus that is built by two at once."""
EXCHANGED = 0.02
"""The share of a copy's words that are others: enough for no copy to be a near-duplicate of the one before."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine")
    parser.add_argument("--megabytes", type=float, nargs="+", default=[8.0, 200.0], help="of text, for each corpus")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES), metavar="NAME")
    parser.add_argument("--folder", type=Path, help="where to work: with space for four times the corpus")
    parser.add_argument("--build", nargs=3, metavar=("RECIPE", "DURABLE", "SCHEDULER"), help=argparse.SUPPRESS)
    parser.add_argument("--unit", type=float, default=32, help="megabytes of files in one task; the product's: 32")
    options = parser.parse_args()
    extraction.UNIT_BYTES = int(options.unit * (1 << 20))
    if options.build:
        return _build(*options.build)
    with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
        for megabytes in options.megabytes:
            _measure(Path(scratch) / f"{megabytes:g}", megabytes, options.engines)


def _measure(home: Path, megabytes: float, engines: list[str]) -> None:
    """Build with each of these engines and print what it took."""
    _write_corpus(home / "corpus", megabytes * 1e6)
    tokenizer_of = _tokenizer(home)
    what, seconds, used, snapshots = f"{megabytes:g} MB", dict[str, float](), dict[str, float](), set[str]()
    for engine in engines:
        count, durable = ENGINES[engine], home / "durable"
        with dask.started(home / "certificates", count) as cluster:
            cluster.wait()
            begun = sum(_cpu_seconds(pid) for pid in cluster.pids)
            result = _built(_recipe(home, tokenizer_of), durable, cluster if count else None)
            seconds[engine] = result["seconds"]
            used[engine] = result["cpu"] + sum(_cpu_seconds(pid) for pid in cluster.pids) - begun
            of_workers = max((_most_megabytes(worker.pid) for worker in cluster.workers), default=0.0)
        snapshots.add(result["snapshot"])
        _print(f"{what}, {engine}: wall time", "s", "lower", seconds[engine])
        _print(f"{what}, {engine}: CPU time of all processes", "CPU-s", "lower", used[engine])
        _print(f"{what}, {engine}: memory of the build", "MB", "lower", result["megabytes"], 2000)
        if count:
            _print(f"{what}, {engine}: memory of the largest worker", "MB", "lower", of_workers, 2000)
        shutil.rmtree(durable)
    assert len(snapshots) == 1, f"found snapshots {snapshots}, expected one"
    if {"one worker", "two workers"} <= seconds.keys():
        gain = seconds["one worker"] / seconds["two workers"]
        at_once = {"two builds at once, in a process each": _gain_of_processors(home, megabytes, tokenizer_of)}
        _print(f"{what}: two workers beside one", "times", "higher", gain, 1.8, at_once)
    for engine in seconds.keys() - {"one process"} if "one process" in seconds else ():
        _print(f"{what}: {engine} beside one process", "times", "lower", seconds[engine] / seconds["one process"])
        _print(f"{what}: CPU time, {engine} beside one process", "times", "lower", used[engine] / used["one process"])
    shutil.rmtree(home)


def _gain_of_processors(home: Path, megabytes: float, tokenizer_of: Path) -> float:
    """How many times as much two builds that share nothing do at once as one alone: the machine's own limit."""
    _write_corpus(home / "part", min(megabytes, MOST_ALONE) * 1e6)
    recipe = _recipe(home, tokenizer_of, "part")
    alone = _built(recipe, home / "alone", None)["seconds"]
    with ThreadPoolExecutor(2) as executor:
        both = executor.map(
            lambda name: _built(recipe, home / name, None)["seconds"], ("first of two", "second of two")
        )
    return float(2 * alone / max(both))


def _built(recipe: DatasetRecipe, durable: Path, cluster: dask.Cluster | None) -> dict[str, Any]:
    """Build in a process of its own: its seconds, its CPU-seconds, its megabytes at most, and the snapshot."""
    scheduler = f"{cluster.scheduler} {cluster.certificates}" if cluster else ""
    command = [sys.executable, "-m", "benchmarks.engine", "--unit", str(extraction.UNIT_BYTES / (1 << 20))]
    command += ["--build", recipe.model_dump_json(), str(durable), scheduler]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def _build(recipe_json: str, durable_path: str, scheduler: str) -> None:
    """Make documents and snapshot, and print what it took."""
    from slipway.assets.datasets.building.dask_cluster import DaskCluster

    recipe, durable, cluster = DatasetRecipe.model_validate_json(recipe_json), Path(durable_path), None
    if scheduler:
        address, certificates = scheduler.split(" ", 1)
        cluster = DaskCluster(address, Path(certificates), lambda line: print(line, file=sys.stderr))
    else:
        workers.WORTH_A_PROCESS = sys.maxsize
    begun, cpu = time.monotonic(), _cpu_seconds(os.getpid())
    with workers.on(cluster):
        steps.make_documents(recipe, durable)
        steps.make_tokenizer(recipe, durable)
        snapshot = steps.make_snapshot(recipe, durable).result["sha256"]
    took = {"seconds": time.monotonic() - begun, "cpu": _cpu_seconds(os.getpid()) - cpu}
    print(json.dumps({**took, "megabytes": _most_megabytes(os.getpid()), "snapshot": snapshot}), flush=True)


def _tokenizer(home: Path) -> Path:
    """A tokenizer that all builds use, trained on a part of the corpus."""
    _write_corpus(home / "sample", 2e6)
    recipe, durable = _recipe(home, None, "sample"), home / "first"
    steps.make_documents(recipe, durable)
    record = shards.TokenizerRecord(**steps.make_tokenizer(recipe, durable).result)
    (home / "tokenizer.json").write_bytes(tokenizer.read(durable, record.sha256))
    shutil.rmtree(durable)
    return home / "tokenizer.json"


def _recipe(home: Path, tokenizer_file: Path | None, corpus: str = "corpus") -> DatasetRecipe:
    return DatasetRecipe.model_validate(
        {
            "name": "corpus",
            "source": {"kind": "directory", "path": str(home / corpus)},
            "cleaning": {"mask": ("email", "ip", "secret")},
            "tokenizer": {"vocab_size": 8192, "file": str(tokenizer_file) if tokenizer_file else None},
        }
    )


def _write_corpus(folder: Path, size: float) -> None:
    """Text files of about a megabyte, each of other documents than all others."""
    folder.mkdir(parents=True)
    draw, written, number, lines, waiting = random.Random(0), 0.0, 0, list[str](), 0
    for text in _texts():
        varied = re.sub(
            r"\w+", lambda word: f"w{draw.randrange(10**6)}" if draw.random() < EXCHANGED else word[0], text
        )
        lines.append(json.dumps({"text": varied}))
        waiting += len(lines[-1]) + 1
        if waiting >= 1e6 or written + waiting >= size:
            path = folder / f"{number:06}.jsonl"
            path.write_text("\n".join(lines) + "\n")
            os.utime(path, (OLD, OLD))
            written, number, lines, waiting = written + waiting, number + 1, [], 0
        if written >= size:
            return


def _texts() -> Iterator[str]:
    """Sources of installed packages, again and again."""
    paths = sorted(Path(sysconfig.get_path("purelib")).rglob("*.py"))
    while True:
        for path in paths:
            text = path.read_text(errors="ignore")
            if 500 < len(text) < 100_000:
                yield text


def _most_megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM"))


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process, and of those that it started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _print(
    metric: str,
    unit: str,
    better: str,
    value: float,
    aim: float | None = None,
    peers: Mapping[str, float] | None = None,
) -> None:
    line = {"benchmark": "engine", "metric": metric, "unit": unit, "better": better}
    beside = {name: round(value, 3) for name, value in (peers or {}).items()}
    print(json.dumps({**line, "ours": round(value, 3), "peers": beside, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
