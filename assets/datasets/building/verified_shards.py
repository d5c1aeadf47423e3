"""Verified shards: a record of the shards of a dataset's last snapshot, so that the next build need not hash them.

A file counts as unchanged while its size, modification time, change time and inode stay the same. The scheduled scrub,
which reads every file, finds silent damage.
"""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, parsing, regular_file, verify
from slipway.trainer.data import shards
from slipway.trainer.data.shards import ShardFile

State = list[int]
CLOCK_SECONDS = 3.0
"""The longest tick of a file system's clock to wait for; FAT's is two seconds."""


class VerifiedShards:
    """The recorded shards of one dataset in the durable tier, which were undamaged at the time."""

    def __init__(self, durable: Path, dataset: str) -> None:
        self._durable = durable
        self._path = durable / "datasets" / dataset / "whole.json"
        self._known = _read(self._path)

    def has(self, shard: ShardFile) -> bool:
        """Whether the shard exists undamaged. It is read only if its file has changed since the record."""
        path = shards.shard_path(self._durable, shard)
        try:
            known = self._known.get(shard.blake3) == _state(path)
        except FileNotFoundError:
            return False
        return known or verify.is_whole(path, shard)

    def note(self, verified: Iterable[ShardFile], scratch: Path) -> None:
        """Record shards that were just verified or written, and forget all others.

        `scratch` is the dataset's scratch folder.

        A later change within the same tick of the file system's clock would be invisible, so this waits for the next
        tick; nothing is recorded if the clock stands still.
        """
        states = {shard.blake3: _state(shards.shard_path(self._durable, shard)) for shard in verified}
        latest = max((max(state[1:3]) for state in states.values()), default=0)
        if _ticked(latest, scratch / "tick"):
            atomic.replace(self._path, atomic.canonical_json(states), scratch)


def _state(path: Path) -> State:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _ticked(latest: int, probe: Path) -> bool:
    """Wait up to `CLOCK_SECONDS` until a new file is younger than `latest`, in nanoseconds; returns whether it is."""
    deadline = time.monotonic() + CLOCK_SECONDS
    while True:
        probe.write_bytes(b"")
        if probe.stat().st_ctime_ns > latest:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)


def _read(path: Path) -> dict[str, Any]:
    """The states by shard; empty if the file is missing or damaged, and then all shards are read."""
    try:
        states = parsing.value(regular_file.read(path))
    except (FileNotFoundError, ValueError):
        return {}
    return states if isinstance(states, dict) else {}
