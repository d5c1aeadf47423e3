"""The memory of a build by the number of its documents, and which part of it grows.

``python -m benchmarks.memory [--documents N ...] [--files]``: makes N short texts, of which one in ten is a
near-duplicate of another, as JSON lines, or with ``--files`` each in a file of its own; makes documents, tokenizer and
snapshot of them with the default recipe, in a process of its own on one processor, then again after every hundredth
file changed. The peak is the most memory that the process held (VmHWM, with what it had mapped of files); that of a
stage is the most while it ran, stages inside it left out. Growth is the difference between the smallest and the largest
number of documents, by document. duckdb may take its 512 MB whatever the number.
"""

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from slipway.assets.datasets.cleaning import near_duplicates
from slipway.assets.datasets.documents import document_table, extraction
from slipway.assets.datasets.reading import sources
from slipway.assets.datasets.texts import snapshot, steps, tokens
from slipway.recipes.dataset import DatasetRecipe

OLD = 1_700_000_000
"""When all files seem to have been written: long ago, so that no build waits for them to be still."""
LINES = 1000
"""Documents of a file of JSON lines."""
WORDS_PER_TEXT = 40
STAGES: tuple[tuple[str, Any, str], ...] = (
    ("listing", sources, "list_source"),
    ("extraction and its index", extraction, "extract"),
    ("writing the index", extraction, "write_index"),
    ("comparing documents", document_table, "write"),
    ("near-duplicates", near_duplicates, "duplicates"),
    ("encoding", tokens, "encode_missing"),
    ("packing", snapshot, "write"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory")
    parser.add_argument("--documents", type=int, nargs="+", default=[100_000, 400_000])
    parser.add_argument("--files", action="store_true", help="each document in a file of its own")
    parser.add_argument("--folder", type=Path, help="where to work")
    options = parser.parse_args()
    peaks, how = dict[int, dict[str, float]](), "files" if options.files else "lines"
    for count in sorted(options.documents):
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            peaks[count] = _measure(Path(scratch), count, options.files, f"{count} documents in {how}")
    least, most = min(peaks), max(peaks)
    if least < most:
        for stage, peak in peaks[most].items():
            growth = (peak - peaks[least][stage]) * 1e6 / (most - least)
            _print(f"{how}: growth of {stage}, from {least} to {most}", "bytes a document", growth)


def _measure(home: Path, count: int, files: bool, what: str) -> dict[str, float]:
    """Build from nothing and after a change, and print what it took; the peaks of the first build by stage."""
    _write_corpus(home / "corpus", count, files)
    first = _in_own_process(home)
    _change(home / "corpus", files)
    again = _in_own_process(home)
    for which, took in (("", first), (", again after every 100th file changed", again)):
        _print(f"{what}{which}: CPU time", "CPU-s", took["cpu"])
        for stage, peak in took["peaks"].items():
            _print(f"{what}{which}: peak memory, {stage}", "MB", peak)
    _print(f"{what}: again after every 100th file changed", "share of the full", again["cpu"] / first["cpu"])
    peaks: dict[str, float] = first["peaks"]
    return peaks


def _in_own_process(home: Path) -> dict[str, Any]:
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
        return executor.submit(_built, home).result()


def _built(home: Path) -> dict[str, Any]:
    """Make all steps in this process: its CPU-seconds, and the megabytes of each stage at most."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.array([0])  # the first array imports pandas, if it is there
    peaks, running = {"the whole build": 0.0, "other": 0.0}, ["other"]

    def turn() -> None:
        peak = _most_megabytes()
        for stage in ("the whole build", running[-1]):
            peaks[stage] = max(peaks.get(stage, 0.0), peak)
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew

    def tracked(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            turn()
            running.append(stage)
            try:
                return function(*arguments, **named)
            finally:
                turn()
                running.pop()

        return run

    for stage, module, name in STAGES:
        setattr(module, name, tracked(stage, getattr(module, name)))
    recipe, durable, begun = _recipe(home), home / "durable", time.process_time()
    steps.make_documents(recipe, durable)
    steps.make_tokenizer(recipe, durable)
    steps.make_snapshot(recipe, durable)
    turn()
    return {"cpu": time.process_time() - begun, "peaks": peaks}


def _recipe(home: Path) -> DatasetRecipe:
    return DatasetRecipe.model_validate(
        {
            "name": "corpus",
            "source": {"kind": "directory", "path": str(home / "corpus")},
            "tokenizer": {"vocab_size": 1024, "megabytes": 1.0},
        }
    )


def _write_corpus(folder: Path, count: int, files: bool) -> None:
    draw, texts = random.Random(0), list[str]()
    for number in range(count):
        if number % 10 == 9:
            texts.append(f"{texts[-1]} w{number}")
        else:
            texts.append(" ".join(f"w{int(20_000 * draw.random() ** 3)}" for _ in range(WORDS_PER_TEXT)))
        if files:
            _write(folder / f"{number // 1000:04}" / f"{number:07}.txt", texts[-1])
        elif len(texts) == LINES or number == count - 1:
            _write(folder / f"{number // LINES:05}.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in texts))
        if len(texts) == LINES:
            texts.clear()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (OLD, OLD))


def _change(corpus: Path, files: bool) -> None:
    """Every hundredth file is another: its text, or each of its lines."""
    paths = sorted(path for path in corpus.rglob("*") if path.is_file())
    for path in paths[::100]:
        text = path.read_text()
        _write(path, f"{text} changed" if files else text.replace('{"text": "', '{"text": "changed '))


def _most_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM"))


def _print(metric: str, unit: str, value: float) -> None:
    line = {"benchmark": "memory", "metric": metric, "unit": unit, "better": "lower"}
    print(json.dumps({**line, "ours": round(value, 3), "peers": {}, "aim": None}), flush=True)


if __name__ == "__main__":
    main()
