"""Parts: each rank's writer reports its part of a checkpoint to rank 0's writer, which commits the checkpoint.

Each rank has one small file, ``<store>/parts/<commit>/<rank>.json``: its files with their hashes, its random state
and values, or the reason why its part is missing. Rank 0's writer removes them after the commit, or when it gives up.
"""

import contextlib
import shutil
import time
from pathlib import Path
from typing import Any

from trainer.base import codec, listing
from trainer.record import fence, files

SavedPart = dict[str, Any]
"""Either {files, random_state, values} or {error}."""
UNREPORTED = ".unreported"
"""The suffix of the empty file of a rank that could not even report its failure, such as in a full store."""
UNWRITABLE: SavedPart = {"error": "its part could not be written into the training store"}
LOOK_SECONDS = 0.5


def report(store: Path, commit: str, rank: int, part: SavedPart) -> None:
    """Record the outcome of one rank's part. Raises OSError, and tells rank 0 so if anything can be told."""
    path = _path(store, commit, rank)
    try:
        codec.replace(path, part)
    except OSError:
        with contextlib.suppress(OSError):  # an empty file finds room in a full store, too
            path.with_suffix(UNREPORTED).touch()
        raise


def gather(store: Path, commit: str, size: int, seconds: float) -> list[SavedPart]:
    """The parts of `size` ranks, by rank; a part that is missing after `seconds` is an error itself."""
    deadline, looked = time.monotonic() + seconds, 0.0
    found: dict[int, SavedPart] = {}
    while True:
        if time.monotonic() - looked > LOOK_SECONDS:
            found |= {rank: UNWRITABLE for rank in range(size) if _path(store, commit, rank, UNREPORTED).exists()}
            looked = time.monotonic()
        for rank in range(size):
            if rank not in found and (part := codec.read_if_there(_path(store, commit, rank), dict[str, Any])):
                found[rank] = part
        if len(found) == size or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    late = {"error": f"its part was not written within {seconds:.0f} s"}
    return [found.get(rank, late) for rank in range(size)]


def remove(store: Path, commit: str) -> None:
    """Remove the parts of a commit."""
    shutil.rmtree(store / files.PARTS / commit, ignore_errors=True)


def remove_older(store: Path, token: fence.Token) -> None:
    """Remove the parts that ranks of older tokens left. Raises OSError for a folder that cannot be listed."""
    for commit in listing.names_if_there(store / files.PARTS):
        if fence.token_of(commit) < token:
            remove(store, commit)


def _path(store: Path, commit: str, rank: int, suffix: str = ".json") -> Path:
    return files.named(store / files.PARTS, commit, f"{rank:05d}").with_suffix(suffix)
