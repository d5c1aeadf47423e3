"""Parts: each rank's writer reports its part of a checkpoint to rank 0's writer, which commits the checkpoint.

Each rank has one small file, ``<store>/parts/<commit>/<rank>.json``: its files with their hashes, its random state
and values, or the reason why its part is missing. For a checkpoint on the NVMe of several nodes, rank 0's writer
announces the manifest in ``manifest.json`` once it has all parts, and each node answers with ``node-<number>.json``
when its own files and the copies of its neighbour's files are visible. Rank 0's writer removes all of them after the
commit, or when it gives up: a writer whose own report is gone stops waiting.
"""

import contextlib
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipway.trainer.base import codec, listing
from slipway.trainer.record import fence, files

SavedPart = dict[str, Any]
"""Of a rank, {files, random_state, values} or {error}; of a node, {} or {error}."""
UNREPORTED = ".unreported"
"""The suffix of the empty file of a rank that could not even report its failure, as in a full store."""
UNWRITABLE: SavedPart = {"error": "its part could not be written into the training store"}
LOOK_SECONDS = 0.5
_MANIFEST = "manifest"


class GivenUp(OSError):
    """Rank 0's writer has given up the checkpoint."""


def report(store: Path, commit: str, rank: int, part: SavedPart) -> None:
    """Record the outcome of one rank's part. Raises OSError, after an attempt to report the error to rank 0."""
    _report(store, commit, _rank(rank), part)


def report_node(store: Path, commit: str, node: int, outcome: SavedPart) -> None:
    """Record the outcome on one node. Raises OSError, as `report`."""
    _report(store, commit, _node(node), outcome)


def announce(store: Path, commit: str, manifest: str) -> None:
    """Announce that rank 0's node has the manifest, with this SHA-256. Raises OSError."""
    codec.replace(_path(store, commit, _MANIFEST), {"sha256": manifest})


def gather(store: Path, commit: str, size: int, seconds: float) -> list[SavedPart]:
    """The parts of `size` ranks, by rank; a part that is missing after `seconds` counts as an error."""
    return _gather(store, commit, [_rank(rank) for rank in range(size)], seconds)


def gather_nodes(store: Path, commit: str, nodes: Sequence[int], seconds: float) -> list[SavedPart]:
    """The outcomes on these nodes, as `gather`."""
    return _gather(store, commit, [_node(node) for node in nodes], seconds)


def said_by_nodes(store: Path, commit: str, nodes: Sequence[int]) -> list[SavedPart]:
    """The answers of these nodes so far; {} for a node without one."""
    return [codec.read_if_there(_path(store, commit, _node(node)), dict[str, Any]) or {} for node in nodes]


def gather_for(store: Path, commit: str, ranks: Sequence[int], reporter: int, seconds: float) -> list[SavedPart]:
    """The parts of these ranks, for the writer of rank `reporter`, which has reported its own. Raises GivenUp."""
    return _gather(store, commit, [_rank(rank) for rank in ranks], seconds, _rank(reporter))


def announced(store: Path, commit: str, reporter: int, seconds: float) -> str:
    """Wait for the announcement of the manifest; returns its SHA-256. `reporter` as in `gather_for`. Raises GivenUp."""
    [manifest] = _gather(store, commit, [_MANIFEST], seconds, _rank(reporter))
    if "error" in manifest:
        raise GivenUp(f"the manifest was not announced within {seconds:.0f} s")
    return str(manifest["sha256"])


def remove(store: Path, commit: str) -> None:
    """Remove the parts of a commit."""
    shutil.rmtree(store / files.PARTS / commit, ignore_errors=True)


def remove_older(store: Path, token: fence.Token) -> None:
    """Remove the parts that ranks of older tokens left. Raises OSError for a folder that cannot be listed."""
    for commit in listing.names_if_there(store / files.PARTS):
        if fence.token_of(commit) < token:
            remove(store, commit)


def _report(store: Path, commit: str, who: str, part: SavedPart) -> None:
    path = _path(store, commit, who)
    try:
        codec.replace(path, part)
    except OSError:
        with contextlib.suppress(OSError):  # an empty file fits even into a full store
            path.with_suffix(UNREPORTED).touch()
        raise


def _gather(store: Path, commit: str, keys: Sequence[str], seconds: float, reporter: str = "") -> list[SavedPart]:
    """The parts under these keys; raises GivenUp if the report of `reporter` is gone."""
    deadline = time.monotonic() + seconds
    looked = 0.0
    parts_by_key: dict[str, SavedPart] = {}
    while True:
        if time.monotonic() - looked > LOOK_SECONDS:
            if reporter and not _path(store, commit, reporter).exists():
                raise GivenUp("rank 0 has given up the checkpoint")
            parts_by_key |= {key: UNWRITABLE for key in keys if _path(store, commit, key, UNREPORTED).exists()}
            looked = time.monotonic()
        for key in keys:
            if key in parts_by_key:
                continue
            part = codec.read_if_there(_path(store, commit, key), dict[str, Any])
            if part:
                parts_by_key[key] = part
        if len(parts_by_key) == len(keys) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    late = {"error": f"its part was not written within {seconds:.0f} s"}
    return [parts_by_key.get(key, late) for key in keys]


def _rank(rank: int) -> str:
    return f"{rank:05d}"


def _node(number: int) -> str:
    return f"node-{number:05d}"


def _path(store: Path, commit: str, who: str, suffix: str = ".json") -> Path:
    return files.named(store / files.PARTS, commit, who).with_suffix(suffix)
