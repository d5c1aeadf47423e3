"""What distributed engines cost on one machine: which one builds datasets beyond it (docs/datasets.md).

``PYTHON -m benchmarks.peers.engines dask|ray|daft|duckdb FOLDER [--rows N]``: PYTHON has the engine beside our own
packages; FOLDER gets the bands. Two workers start, clean texts with our own cleaner, lose one worker by SIGKILL
meanwhile, and find the bands that documents share, as the comparison of near-duplicates does first. duckdb does the
last of these in one process within 512 MB.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORKERS = 2
TASKS = 24
BANDS_OF_A_DOCUMENT = 16
FILE_ROWS = 4_000_000
SHARED = 0.1
"""The share of the documents that have all bands of another one."""


def clean(number: int) -> int:
    """Clean a text of half a megabyte with every default; the worker that does it is named in a file."""
    from slipway.assets.datasets.cleaning.cleaner import Cleaner
    from slipway.recipes.cleaning import CleaningSection

    (Path(os.environ["MARKS"]) / f"{os.getpid()}").touch()
    numbers = np.random.default_rng(number).integers(0, 30_000, 80_000)
    text = "\n".join(" ".join(f"w{word}" for word in line) for line in numbers.reshape(-1, 10))
    cleaned = Cleaner(CleaningSection()).clean(f"{number}.txt", text)
    return len(cleaned.text)


def write_bands(folder: Path, rows: int) -> None:
    """Files of `row` and `bucket`: 16 bands a document, and a tenth of the documents equal to another."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, begin in enumerate(range(0, rows, FILE_ROWS)):
        row = np.arange(begin, min(begin + FILE_ROWS, rows), dtype=np.int64) // BANDS_OF_A_DOCUMENT
        band = np.arange(len(row), dtype=np.uint64) % np.uint64(BANDS_OF_A_DOCUMENT)
        like = np.where(row % 10 == 0, np.maximum(row - 1, 0), row).astype(np.uint64)
        mixed = (like * np.uint64(BANDS_OF_A_DOCUMENT) + band) * np.uint64(0x9E3779B97F4A7C15)
        table = pa.table({"row": row, "bucket": mixed.view(np.int64)})
        pq.write_table(table, folder / f"{number:03}.parquet", compression="none", use_dictionary=False)


@contextmanager
def dask(scratch: Path) -> Iterator[tuple[Callable[[], list[int]], Callable[[Path], int]]]:
    import distributed

    with (
        distributed.LocalCluster(
            WORKERS, threads_per_worker=1, memory_limit="2GB", dashboard_address=None, local_directory=str(scratch)
        ) as cluster,
        distributed.Client(cluster) as client,
    ):

        def joined(folder: Path) -> int:
            import dask.dataframe

            bands = dask.dataframe.read_parquet(str(folder))
            counted = bands.groupby("bucket").row.count(split_out=32)
            return int((counted > 1).sum().compute())

        yield lambda: client.gather(client.map(clean, range(TASKS), pure=False)), joined


@contextmanager
def ray(scratch: Path) -> Iterator[tuple[Callable[[], list[int]], Callable[[Path], int]]]:
    import ray  # type: ignore[import-not-found]

    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        object_store_memory=2 << 30,
        _temp_dir=str(scratch),
        log_to_driver=False,
    )
    remote = ray.remote(clean)

    def joined(folder: Path) -> int:
        bands = ray.data.read_parquet(str(folder))
        counted = bands.groupby("bucket", num_partitions=32).count(alias_name="rows")
        return int(counted.filter(expr="rows > 1").count())

    try:
        yield lambda: ray.get([remote.remote(number) for number in range(TASKS)]), joined
    finally:
        ray.shutdown()


@contextmanager
def duckdb(scratch: Path) -> Iterator[tuple[None, Callable[[Path], int]]]:
    import duckdb

    def joined(folder: Path) -> int:
        with duckdb.connect() as connection:
            connection.execute("SET memory_limit = '512MB'; SET threads = 2")
            connection.execute("SET temp_directory = ?", [str(scratch)])
            query = "SELECT count(*) FROM (SELECT bucket FROM read_parquet(?) GROUP BY bucket HAVING count(*) > 1)"
            return int(connection.execute(query, [f"{folder}/*.parquet"]).fetchall()[0][0])

    yield None, joined


@contextmanager
def daft(scratch: Path) -> Iterator[tuple[None, Callable[[Path], int]]]:
    import daft  # type: ignore[import-not-found]

    def joined(folder: Path) -> int:
        counted = daft.read_parquet(f"{folder}/*.parquet").groupby("bucket").agg(daft.col("row").count())
        return int(counted.where(daft.col("row") > 1).count_rows())

    yield None, joined  # on several machines it runs on Ray, whose workers the other case measures


ENGINES = {"dask": dask, "ray": ray, "daft": daft, "duckdb": duckdb}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers.engines")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=32_000_000, help="of bands, 16 bytes each")
    options = parser.parse_args()
    marks = options.folder / f"marks-{options.engine}"
    marks.mkdir(parents=True, exist_ok=True)
    os.environ["MARKS"] = str(marks)
    bands = options.folder / f"bands-{options.rows}"
    if not bands.exists():
        write_bands(bands, options.rows)
    begin = time.monotonic()
    with ENGINES[options.engine](options.folder / "scratch") as (mapped, joined):
        if mapped is not None:
            mapped()
            tell(options.engine, "start and first tasks", "s", time.monotonic() - begin)
            workers = [int(path.name) for path in marks.iterdir()]
            tell(options.engine, "resident memory of all processes but ours", "MB", tree_megabytes())
            tell(options.engine, f"{TASKS} tasks, two workers", "s", timed(mapped)[0])
            threading.Timer(1.0, os.kill, (workers[0], signal.SIGKILL)).start()
            seconds, results = timed(mapped)
            tell(options.engine, "the same, one worker killed after 1 s", "s", seconds)
            assert len(results) == TASKS
        with peak() as most:
            seconds, count = timed(lambda: joined(bands))
        tell(options.engine, f"bands shared, of {options.rows * 16 / 1e9:.1f} GB", "s", seconds)
        tell(options.engine, "the same: bands", "count", count)
        tell(options.engine, "the same: memory of all processes", "MB", most[0])


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.monotonic()
    result = work()
    return time.monotonic() - begin, result


@contextmanager
def peak() -> Iterator[list[float]]:
    """The most megabytes that this process and those below it had at once, once the block has ended."""
    most, over = [0.0], threading.Event()

    def watch() -> None:
        while not over.wait(0.5):
            most[0] = max(most[0], tree_megabytes(own=True))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()


def tree_megabytes(own: bool = False) -> float:
    """Proportional memory of the processes below this one."""
    from slipway.trainer.base.processes import descendants

    total = 0
    for pid in [*descendants(os.getpid()), *([os.getpid()] if own else [])]:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return total / 1024


def tell(engine: str, metric: str, unit: str, value: float) -> None:
    line = {"benchmark": "engines", "metric": metric, "unit": unit, "better": "lower"}
    sys.stdout.write(json.dumps({**line, "ours": None, "peers": {engine: round(value, 2)}, "aim": None}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
