"""The memory and time of comparing documents by their number, with features that are drawn instead of computed.

``python -m benchmarks.comparing [--documents N ...] [--alike SHARE] [--again]``: writes segments and the index of N
documents whose hashes, bands and signatures are random numbers, of which SHARE are near-duplicates of another; makes
the documents table of them in a process of its own. So the part of a build that compares each document with all others
is measured on millions of them within minutes. Memory is the most that the process held (VmHWM) less what it held
before; duckdb may take its 512 MB whatever the number.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building.build import begin_build
from slipway.assets.datasets.building.build_log import quiet
from slipway.assets.datasets.building.scratch_dir import scratch_dir
from slipway.assets.datasets.cleaning import minhash
from slipway.assets.datasets.documents import document_table, extracts
from slipway.assets.datasets.documents.extracts import Extracts
from slipway.assets.datasets.texts import segments
from slipway.assets.datasets.texts.documents import TEXT_DOCUMENTS
from slipway.recipes.dataset import DatasetRecipe

IN_A_SEGMENT = 50_000
IN_A_FILE = 1000
IN_A_GROUP = 1024


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparing")
    parser.add_argument("--documents", type=int, nargs="+", default=[250_000, 1_000_000])
    parser.add_argument("--alike", type=float, default=0.1, help="the share of documents that have a near-duplicate")
    parser.add_argument("--folder", type=Path, help="where to work: with space for 2 kB a document")
    options = parser.parse_args()
    peaks = dict[int, float]()
    for count in sorted(options.documents):
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            durable = Path(scratch)
            index = _write(durable, count, options.alike)
            with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                seconds, peaks[count], n_documents = executor.submit(_compare, durable, index, count).result()
        _print(f"{count} documents: CPU time", "CPU-s", seconds)
        _print(f"{count} documents: peak memory", "MB", peaks[count])
        _print(f"{count} documents: left out as near-duplicates", "share", 1 - n_documents / count)
    least, most = min(peaks), max(peaks)
    if least < most:
        _print(
            f"growth from {least} to {most}", "bytes a document", (peaks[most] - peaks[least]) * 1e6 / (most - least)
        )


def _compare(durable: Path, index: Path, count: int) -> tuple[float, float, int]:
    """CPU-seconds, megabytes, and the documents that are kept."""
    recipe = DatasetRecipe.model_validate({"name": "drawn", "source": {"kind": "directory", "path": "."}})
    before, begun = _most_megabytes(), time.process_time()
    with begin_build(recipe, TEXT_DOCUMENTS, durable, quiet) as build:
        table = document_table.write(build, Extracts(index, "", count // IN_A_FILE, 0, 0))
    return time.process_time() - begun, _most_megabytes() - before, table.kept_rows


def _write(durable: Path, count: int, alike: float) -> Path:
    """Segments and index of so many documents."""
    random, rows = np.random.default_rng(0), list[tuple[str, str, int, str, str]]()
    (durable / "segments").mkdir()
    for begin in range(0, count, IN_A_SEGMENT):
        name = f"{begin:064}"
        with pq.ParquetWriter(extracts.segment_path(durable, name), segments.SCHEMA, compression="none") as writer:
            for table in _tables(random, begin, min(begin + IN_A_SEGMENT, count), alike):
                writer.write_table(table)
        files = range(begin // IN_A_FILE, (min(begin + IN_A_SEGMENT, count) - 1) // IN_A_FILE + 1)
        rows += [(f"{file:08}.jsonl", "1-2-3", 1, f"{file:064}", name) for file in files]
    with scratch_dir(durable, "drawn") as scratch:
        return extracts.write_index(durable, "drawn", "key", rows, scratch)


def _tables(random: np.random.Generator, begin: int, end: int, alike: float) -> Iterator[pa.Table]:
    bands, rows = minhash.banding(0.8)
    for first in range(begin, end, IN_A_GROUP):
        numbers = np.arange(first, min(first + IN_A_GROUP, end))
        count = len(numbers)
        signatures = random.integers(0, 1 << 32, (count, minhash.PERMUTATIONS), np.uint32)
        like = np.flatnonzero(random.random(count) < alike)
        like = like[like > 0]
        signatures[like] = signatures[like - 1]
        of_bands = [minhash.bands(signature, 0.8) for signature in signatures]
        assert all(len(bands_of_one) == bands and rows for bands_of_one in of_bands)
        hashes = [random.bytes(32).hex() for _ in range(count)]
        columns = {field.name: pa.nulls(count, field.type) for field in segments.SCHEMA}
        columns |= {
            "file": pa.array([f"{number // IN_A_FILE:08}.jsonl" for number in numbers]),
            "number": pa.array(numbers % IN_A_FILE),
            "bytes": pa.array(np.full(count, 200)),
            "blake3": pa.array(hashes),
            "identity": pa.array(hashes),
            "masked": pa.array(np.zeros(count, np.int32)),
            "bands": pa.array(of_bands, pa.list_(pa.uint64())),
            "signature": pa.array([signature.tobytes() for signature in signatures], pa.binary()),
        }
        yield pa.table([columns[name] for name in segments.SCHEMA.names], schema=segments.SCHEMA)


def _most_megabytes() -> float:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmHWM"))


def _print(metric: str, unit: str, value: float) -> None:
    line = {"benchmark": "comparing", "metric": metric, "unit": unit, "better": "lower"}
    print(json.dumps({**line, "ours": round(value, 3), "peers": {}, "aim": None}), flush=True)


if __name__ == "__main__":
    main()
