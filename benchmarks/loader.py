"""Reading in shuffled order, by one process from a warm page cache: ours beside what others read from.

``python -m benchmarks.loader [--megatokens N] [--peers-python PYTHON]``: Arrow IPC, Parquet and the nanoGPT idiom
need nothing further; litdata and MosaicML streaming are read by PYTHON, where they are installed. All give the same
windows of the same tokens in batches of 512, each in its own shuffled order; ours also as a mix of four datasets.
Then what it takes to go on in the middle of an epoch of 10^9 samples, in time and memory, and at the same place of a
mix.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from slipway.trainer.config.mix import parts
from slipway.trainer.data import shards
from slipway.trainer.data.sequences import Sequences, Tokens
from slipway.trainer.loading.blend import Blend, Source
from slipway.trainer.loading.order import Order, SampleOrder

BATCH, ROUNDS = 512, 4
SHARD = 1 << 22
"""Tokens in a shard and, of the others, in what they call a chunk, a record batch or a row group."""
SAMPLES = 10**9
WEIGHTS = {"web": 0.62, "code": 0.23, "books": 0.11, "maths": 0.0437}
"""Of the datasets of a mix; so odd that its pattern has 10,000 places."""
Windows = np.ndarray[Any, np.dtype[np.uint16]]
Pass = Callable[[int], Iterator[Any]]
"""Batch after batch of one pass over all windows, in the order of this seed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loader")
    parser.add_argument("--megatokens", type=int, default=64, help="tokens to read, in millions")
    parser.add_argument("--length", type=int, default=2048, help="tokens a window")
    parser.add_argument("--peers-python", help="a Python that has litdata or mosaicml-streaming")
    options = parser.parse_args()
    _mixing(1_000)
    with tempfile.TemporaryDirectory() as folder:
        _reading(Path(folder), options.megatokens * 1_000_000, options.length, options.peers_python)
    for count in (1_000, SAMPLES * 2048 // 16_777_216):
        _resuming(count)


def _reading(folder: Path, tokens: int, length: int, peers_python: str | None) -> None:
    """Write the tokens in every format, read them in turn, and print the rates."""
    stream = np.random.default_rng(0).integers(0, 50_000, tokens, np.uint16)
    windows = np.lib.stride_tricks.sliding_window_view(stream, length + 1)[::length]
    plain, mixed = _our_passes(folder, stream, length)
    passes: dict[str, Pass] = {
        "ours": plain,
        "ours, mixed": mixed,
        "ours, int64": lambda seed: (torch.from_numpy(batch).long() for batch in plain(seed)),
        "Arrow IPC": _arrow(folder, windows),
        "Parquet": _parquet(folder, windows),
        "nanoGPT": _nanogpt(folder, stream, length),
    }
    rates = dict.fromkeys(passes, 0.0)
    for seed in range(ROUNDS):
        for name, read in passes.items():
            rates[name] = max(rates[name], _rate(read, seed, len(windows) * length))
    libraries = _libraries(folder, length, peers_python)
    wide, rate, blended = rates.pop("ours, int64"), rates.pop("ours"), rates.pop("ours, mixed")
    unit = "million tokens/s a process"
    _print("reading in shuffled order", unit, "higher", rate, {**rates, **libraries}, 500)
    _print("reading in shuffled order, as int64 on the processor", unit, "higher", wide, {"nanoGPT": rates["nanoGPT"]})
    _print(f"reading a mix of {len(WEIGHTS)} datasets", unit, "higher", blended, {"one dataset": rate})
    if libraries:
        fold = rate / max(libraries.values())
        _print("reading in shuffled order, beside the best streaming library", "times", "higher", fold, {}, 10)


def _rate(read: Pass, seed: int, tokens: int) -> float:
    """Million tokens/s of one pass."""
    begun = time.perf_counter()
    for _ in read(seed):
        pass
    return tokens / (time.perf_counter() - begun) / 1e6


def _our_passes(folder: Path, stream: Windows, length: int) -> tuple[Pass, Pass]:
    """One dataset, and the same shards as the datasets of a mix."""
    parts = [stream[at : at + SHARD + 1] for at in range(0, len(stream) - 1, SHARD)]
    written = tuple(shards.write_shard(folder, [part], "uint16") for part in parts)
    splits = {"train": shards.TokenSplit(len(parts), len(stream), 2 * len(stream), written)}
    tokenizer = shards.TokenizerRecord("0" * 64, 50_000, 0)
    snapshot = shards.TextSnapshot("random", "0" * 64, {}, {}, tokenizer, "uint16", splits)
    sequences = Sequences(folder, snapshot, "train", length)
    buffer = np.empty((BATCH, length + 1), np.uint16)

    def read(order: SampleOrder) -> Iterator[Tokens]:
        for at in range(0, len(order), BATCH):
            numbers = order.samples(at, min(BATCH, len(order) - at))
            yield sequences.read(numbers, buffer[: len(numbers)])

    return lambda seed: read(Order(sequences.sizes, seed, 64)), lambda seed: read(_blend(sequences.sizes, seed))


def _blend(sizes: npt.NDArray[np.int64], seed: int) -> Blend:
    """The order of a mix of as many datasets as `WEIGHTS`, which divide shards of these sizes."""
    shards_of_source = np.array_split(np.arange(len(sizes)), len(WEIGHTS))
    begins = np.concatenate([[0], np.cumsum(sizes)])
    sources = [
        Source(name, Order(sizes[own], f"{seed}/{name}", 64), int(own[0]), int(begins[own[0]]))
        for name, own in zip(WEIGHTS, shards_of_source, strict=True)
    ]
    return Blend(sources, [(0, parts(WEIGHTS))])


def _arrow(folder: Path, windows: Windows) -> Pass:
    """Rows of fixed size in a memory-mapped file, each read without a copy and copied to its place."""
    rows, path = SHARD // windows.shape[1], str(folder / "tokens.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, _table(windows[:0]).schema) as writer:
        for at in range(0, len(windows), rows):
            writer.write_table(_table(windows[at : at + rows]))
    chunks = pa.ipc.open_file(pa.memory_map(path)).read_all().column(0).chunks
    buffer = np.empty((BATCH, windows.shape[1]), np.uint16)

    def read(seed: int) -> Iterator[Windows]:
        numbers = np.random.default_rng(seed).permutation(len(windows))
        for at in range(0, len(windows), BATCH):
            batch = numbers[at : at + BATCH]
            for row, number in enumerate(batch.tolist()):
                buffer[row] = chunks[number // rows][number % rows].values.to_numpy()
            yield buffer[: len(batch)]

    return read


def _parquet(folder: Path, windows: Windows) -> Pass:
    """Row groups in a shuffled order, and the rows of each shuffled, as nothing smaller can be read."""
    path, rows, width = folder / "tokens.parquet", SHARD // windows.shape[1], windows.shape[1]
    pq.write_table(_table(windows), path, row_group_size=rows, compression="none", use_dictionary=False)

    def read(seed: int) -> Iterator[Windows]:
        draw, file = np.random.default_rng(seed), pq.ParquetFile(path)
        for group in draw.permutation(file.num_row_groups).tolist():
            column = file.read_row_group(group).column(0).combine_chunks()
            values = column.flatten().to_numpy().reshape(-1, width)
            numbers = draw.permutation(len(values))
            for at in range(0, len(values), BATCH):
                yield values[numbers[at : at + BATCH]]

    return read


def _nanogpt(folder: Path, stream: Windows, length: int) -> Pass:
    """`get_batch` of nanoGPT's train.py: windows anywhere, widened one by one, inputs and targets stacked apart."""
    path = folder / "train.bin"
    stream.tofile(path)

    def read(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(len(stream) // length // BATCH):
            data = np.memmap(path, dtype=np.uint16, mode="r")
            begins = torch.randint(len(data) - length, (BATCH,), generator=generator).tolist()
            x = torch.stack([torch.from_numpy(data[i : i + length].astype(np.int64)) for i in begins])
            y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + length].astype(np.int64)) for i in begins])
            yield x, y

    return read


def _table(windows: Windows) -> pa.Table:
    width = windows.shape[1]
    return pa.table({"tokens": pa.FixedSizeListArray.from_arrays(pa.array(windows.ravel()), width)})


def _libraries(folder: Path, length: int, python: str | None) -> dict[str, float]:
    if python is None:
        print("loader: without litdata and MosaicML streaming: no --peers-python", file=sys.stderr)
        return {}
    script = Path(__file__).parent / "peers" / "loader.py"
    command = [python, str(script), str(folder / "train.bin"), str(length), str(folder / "peers")]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    rates: dict[str, float] = json.loads(output.splitlines()[-1])
    return rates


def _resuming(count: int) -> None:
    """What the first batch costs in the middle of an epoch of 10^9 samples in `count` shards."""
    sizes, seconds = np.full(count, SAMPLES // count), []
    for epoch in range(1, 6):
        begun = time.perf_counter()
        Order(sizes, 1, 64).samples(epoch * SAMPLES + SAMPLES // 2, BATCH)
        seconds.append(time.perf_counter() - begun)
    of = f"in the middle of an epoch of 10^9 samples in {count:,} shards"
    _print(f"time to resume {of}", "ms", "lower", 1000 * min(seconds), {}, 10)
    tracemalloc.start()
    order = Order(sizes, 1, 64)
    order.samples(SAMPLES // 2, BATCH)
    megabytes = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    _print(
        f"index memory {of}", "MB", "lower", megabytes, {"an index of 8 bytes a sample (computed)": 8 * SAMPLES / 1e6}
    )


def _mixing(count: int) -> None:
    """Processor time of a mix's order: of its first batch at the same place, with its pattern, and of each sample."""
    sizes, start = np.full(count, SAMPLES // count), SAMPLES + SAMPLES // 2
    begun = time.process_time()
    _blend(sizes, 1).samples(start, BATCH)
    first = 1000 * (time.process_time() - begun)
    _print(
        f"resuming a mix of {len(WEIGHTS)} datasets, {count:,} shards", "ms of processor time", "lower", first, {}, 100
    )
    orders: dict[str, SampleOrder] = {"mix": _blend(sizes, 1), "one dataset": Order(sizes, 1, 64)}
    spent = dict.fromkeys(orders, float("inf"))
    for _ in range(ROUNDS):
        for name, order in orders.items():
            begun = time.process_time()
            for batch in range(200):
                order.samples(start + batch * BATCH, BATCH)
            spent[name] = min(spent[name], 1e9 * (time.process_time() - begun) / 200 / BATCH)
    _print(f"order of a mix of {len(WEIGHTS)} datasets", "ns a sample", "lower", spent.pop("mix"), spent)


def _print(
    metric: str, unit: str, better: str, value: float, peers: dict[str, float], aim: float | None = None
) -> None:
    line = {"benchmark": "loader", "metric": metric, "unit": unit, "better": better}
    print(json.dumps({**line, "ours": value, "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
