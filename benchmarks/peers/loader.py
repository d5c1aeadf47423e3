"""The streaming libraries of the loader benchmark, run by a Python of their own, as they need other versions.

``PYTHON benchmarks/peers/loader.py TOKENS LENGTH FOLDER``: writes the windows of the raw uint16 file TOKENS in each
library's format below FOLDER, reads them all in its shuffled order into the rows of a batch, and prints
`{name: million tokens/s}`.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 512
PASSES = 3
"""The first one warms the cache; the fastest one counts."""


def main(tokens: Path, length: int, folder: Path) -> None:
    data = np.fromfile(tokens, np.uint16)
    count = (len(data) - 1) // length
    rows = [data[row * length : row * length + length + 1] for row in range(count)]
    peers: dict[str, tuple[str, Callable[..., Iterable[Any]]]] = {
        "litdata": ("litdata", _litdata),
        "MosaicML streaming": ("streaming", _mosaic),
    }
    installed = {name: read for name, (module, read) in peers.items() if importlib.util.find_spec(module)}
    print(json.dumps({name: _rate(read(rows, folder / name), length) for name, read in installed.items()}))


def _rate(samples: Iterable[Any], length: int) -> float:
    """The fastest pass's million tokens/s; a sample is copied to its row of the batch, where ours is too."""
    batch, rates = np.empty((BATCH, length + 1), np.uint16), []
    for _ in range(PASSES):
        begun, n_samples = time.perf_counter(), 0
        for sample in samples:
            batch[n_samples % BATCH, : len(sample)] = sample
            n_samples += 1
        rates.append(n_samples * length / (time.perf_counter() - begun) / 1e6)
    return max(rates)


def _litdata(rows: list[np.ndarray[Any, Any]], folder: Path) -> Iterable[Any]:
    """Blocks of the token stream, as litdata does it for language models; a row's last token begins the next."""
    import torch
    from litdata import StreamingDataset, TokensLoader  # type: ignore[import-not-found]
    from litdata.streaming.cache import Cache  # type: ignore[import-not-found]

    length = len(rows[0]) - 1
    cache = Cache(str(folder), chunk_bytes="8MB", item_loader=TokensLoader(block_size=length))
    for index, row in enumerate(rows):
        cache[index] = torch.from_numpy(row[:length].copy())
    cache.done()
    cache.merge()
    dataset = StreamingDataset(str(folder), item_loader=TokensLoader(block_size=length), shuffle=True)
    return _Mapped(dataset, lambda sample: sample.numpy())


def _mosaic(rows: list[np.ndarray[Any, Any]], folder: Path) -> Iterable[Any]:
    from streaming import MDSWriter, StreamingDataset  # type: ignore[import-not-found]

    with MDSWriter(out=str(folder), columns={"tokens": f"ndarray:uint16:{len(rows[0])}"}, size_limit=1 << 23) as out:
        for row in rows:
            out.write({"tokens": row})
    dataset = StreamingDataset(local=str(folder), shuffle=True, batch_size=64)
    return _Mapped(dataset, lambda sample: sample["tokens"])


class _Mapped:
    """Each pass over `samples`, one by one through `give`."""

    def __init__(self, samples: Iterable[Any], give: Callable[[Any], Any]) -> None:
        self._samples, self._give = samples, give

    def __iter__(self) -> Iterator[Any]:
        return map(self._give, self._samples)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
