"""Parts: what each rank's writer says of its part of a checkpoint, for rank 0's writer, which commits the whole.

One small file a rank in ``<store>/parts/<commit>/<rank>.json``: its files with their hashes, its random state and
values, or the reason why it has none. They are gone once the checkpoint is committed or given up.
"""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from trainer import atomic

Part = dict[str, Any]
"""Either {files, random_state, values} or {error}."""


def report(store: Path, commit: str, rank: int, part: Part) -> None:
    """Say what has come of one rank's part. Raises OSError."""
    atomic.replace(_path(store, commit, rank), atomic.canonical_json(part))


def gather(store: Path, commit: str, size: int, seconds: float) -> list[Part]:
    """The parts of `size` ranks, by rank; one that has not come after `seconds` is an error of its own."""
    deadline = time.monotonic() + seconds
    found: dict[int, Part] = {}
    while True:
        for rank in range(size):
            if rank not in found and (path := _path(store, commit, rank)).exists():
                found[rank] = json.loads(path.read_bytes())
        if len(found) == size or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    late = {"error": f"has not finished within {seconds:.0f} s"}
    return [found.get(rank, late) for rank in range(size)]


def sweep(store: Path, commit: str = "") -> None:
    """Remove the parts of a commit; of all of them by default."""
    shutil.rmtree(store / "parts" / commit, ignore_errors=True)


def _path(store: Path, commit: str, rank: int) -> Path:
    return store / "parts" / commit / f"{rank:05d}.json"
