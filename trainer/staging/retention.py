"""Retention: the removal of snapshots from a node's NVMe, so that it never runs full; snapshots in use stay.

Retention removes the snapshots that were not used for some days, then the least recently used ones until the others
fit. A snapshot under a lease stays, and so does a shard of such a snapshot or of a window. On a full disk, a staging
makes room at once (`make_room`). By hand: `slipway nodes clean`.

A write that fails on a full disk is repeated in the room that removals make (`in_room`). Stagings notice a full disk at
the same moment, and each removal serves all of them. So they continue one at a time: if one finds nothing to remove, no
other one is making room, and there is none.
"""

import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slipway.trainer.base import lock, paths, removal
from slipway.trainer.base.units import DAY
from slipway.trainer.data import shards, snapshots
from slipway.trainer.staging import leases, nvme

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk."""
_T = TypeVar("_T")


@dataclass(frozen=True)
class Resident:
    """A snapshot on the NVMe."""

    sha256: str
    used: float
    """When it was last used, in seconds since the epoch; a leased snapshot is used now."""
    leased: bool
    shards: frozenset[str]
    """BLAKE3 of the shards that it names, on the NVMe or not."""


@dataclass(frozen=True)
class Retained:
    """The snapshots that a retention has removed, and those that stay; in a dry run, those that it would remove."""

    removed_snapshots: tuple[str, ...]
    removed_shards: int
    removed_bytes: int
    removed_partial: int
    kept_snapshots: int
    kept_bytes: int
    leased_snapshots: int


@dataclass(frozen=True)
class NodeContents:
    """The content of a node's NVMe at one moment, read under the exclusive lock of `leases/`."""

    sizes: Mapping[str, int]
    """The bytes of each shard."""
    residents: Sequence[Resident]
    window_shards: Collection[str]
    """The shards that windows hold."""
    in_doubt: bool
    """Whether a lease holds a snapshot whose shards are not known."""

    def without(self, going: Collection[str]) -> list[Resident]:
        """The snapshots that stay when these go."""
        return [resident for resident in self.residents if resident.sha256 not in going]

    def surplus(self, going: Collection[str] = ()) -> list[str]:
        """The shards of these snapshots alone, which no window holds; empty while anything is in doubt."""
        if self.in_doubt:
            return []
        named = set(self.window_shards).union(*(resident.shards for resident in self.without(going)))
        return [shard for shard in self.sizes if shard not in named]


def snapshots_to_remove(
    residents: Sequence[Resident], sizes: Mapping[str, int], most_bytes: float, oldest: float
) -> list[str]:
    """The snapshots to remove, the least recently used first: last used before `oldest`, or too many for `most_bytes`.

    `sizes` are the bytes of each shard on the NVMe. Leased snapshots count, and stay.
    """
    users = Counter(shard for resident in residents for shard in resident.shards)
    total = sum(sizes[shard] for shard in users if shard in sizes)
    going = []
    for resident in sorted(residents, key=lambda resident: (resident.used, resident.sha256)):
        if resident.leased or (resident.used >= oldest and total <= most_bytes):
            continue
        going.append(resident.sha256)
        users.subtract(resident.shards)
        total -= sum(sizes.get(shard, 0) for shard in resident.shards if users[shard] == 0)
    return going


def retain(node: Path, gigabytes: float, days: float, dry_run: bool = False) -> Retained:
    """Bring the NVMe folder `node` under the limits, as far as leases allow.

    No process can begin to use a snapshot during the removal. It also removes partial files that no staging has
    continued for `days`, and shards of no snapshot. Raises OSError.
    """
    oldest = time.time() - days * DAY
    with lock.exclusive(node / paths.LEASES):
        contents = _contents(node)
        sizes = contents.sizes
        residents = contents.residents
        going = snapshots_to_remove(residents, sizes, gigabytes * 1e9, oldest)
        surplus = contents.surplus(going)
        staying = contents.without(going)
        partial = nvme.partial_files(node, oldest)
        if not dry_run:
            _remove(node, going, surplus)
            nvme.remove_partial(node, oldest)
    return Retained(
        removed_snapshots=tuple(going),
        removed_shards=len(surplus),
        removed_bytes=sum(sizes[shard] for shard in surplus),
        removed_partial=len(partial),
        kept_snapshots=len(staying),
        kept_bytes=sum(sizes.values()) - sum(sizes[shard] for shard in surplus),
        leased_snapshots=sum(resident.leased for resident in residents),
    )


def make_room(node: Path, bytes_needed: int) -> int:
    """Remove files without a lease until `bytes_needed` bytes are free: shards of no snapshot, then the least recently
    used snapshots. Returns the removed bytes, 0 if leases hold everything. Raises OSError.
    """
    with lock.exclusive(node / paths.LEASES):
        contents = _contents(node)
        sizes = {name: size for name, size in contents.sizes.items() if name not in contents.window_shards}
        short = bytes_needed - sum(sizes[shard] for shard in contents.surplus())
        named = sum(sizes.get(shard, 0) for shard in {shard for one in contents.residents for shard in one.shards})
        going = snapshots_to_remove(contents.residents, sizes, named - short, 0.0) if short > 0 else []
        surplus = contents.surplus(going)
        _remove(node, going, surplus)
    return sum(sizes[shard] for shard in surplus)


def evict(node: Path, unneeded: Collection[str]) -> int:
    """Remove the shards that no lease holds; returns their bytes. Raises OSError."""
    with lock.exclusive(node / paths.LEASES):
        sizes = paths.digests(node, paths.SHARDS)
        going = (set(unneeded) & set(sizes)) - _leased_shards(node)
        _remove(node, (), sorted(going))
    return sum(sizes[shard] for shard in going)


def room(node: Path, own: Collection[str]) -> int:
    """The bytes for the shards `own` on the NVMe: free bytes, their own, and those that no lease holds."""
    with lock.exclusive(node / paths.LEASES):
        leased_shards = _leased_shards(node) - set(own)
        sizes = paths.digests(node, paths.SHARDS)
        return shutil.disk_usage(node).free + sum(size for shard, size in sizes.items() if shard not in leased_shards)


def in_room(nvme: Path, bytes_needed: int, write: Callable[[], _T]) -> _T:
    """The result of `write`, which writes `bytes_needed` bytes to the NVMe; on a full disk, files without a lease go.

    If `write` fails, it must leave no bytes; it is then called again. Raises its OSError if leases hold everything, and
    that of a failed removal.
    """
    try:
        return write()
    except OSError as error:
        if error.errno not in FULL:
            raise
    with lock.exclusive(nvme / paths.PARTIAL):
        if shutil.disk_usage(nvme).free < bytes_needed:
            make_room(nvme, bytes_needed)
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in FULL or not make_room(nvme, bytes_needed):
                    raise


def _leased_shards(node: Path) -> set[str]:
    """The shards that a lease holds; all of them while it is not known which a leased snapshot names."""
    if _in_doubt(node):
        return set(paths.digests(node, paths.SHARDS))
    leased = [one for one in paths.digests(node, paths.SNAPSHOTS) if leases.is_held(node, one)]
    return leases.held_shards(node).union(*(_named(node, sha256) or () for sha256 in leased))


def _remove(node: Path, going: Sequence[str], surplus: Sequence[str]) -> None:
    """Remove the marker and the manifest of a snapshot before its shards: after a kill in between, both are right.

    Raises OSError for a symbolic link in the way.
    """
    for sha256 in going:
        for folder in (paths.STAGED, paths.SNAPSHOTS, paths.LEASES):
            removal.remove_file(node, paths.named(folder, sha256))
    for shard in surplus:
        removal.remove_file(node, paths.named(paths.SHARDS, shard))
    for path in (node / paths.VERIFIED).glob("*.journal"):
        if path.stem != nvme.boot():
            path.unlink()


def _contents(node: Path) -> NodeContents:
    """Read shards first, then doubts, then snapshots: a staging may bring shards and manifests at the same time.

    Files that it brings after the reading of their kind are not removed, and until its manifest is there, the content
    is in doubt.
    """
    sizes = paths.digests(node, paths.SHARDS)
    in_doubt = _in_doubt(node)
    return NodeContents(sizes, _residents(node), leases.held_shards(node), in_doubt)


def _residents(node: Path) -> list[Resident]:
    return [_resident(node, sha256) for sha256 in paths.digests(node, paths.SNAPSHOTS)]


def _resident(node: Path, sha256: str) -> Resident:
    """The present state of a snapshot, without shards if its manifest is damaged. It notes a present use."""
    lease = paths.lease(node, sha256)
    leased = leases.is_held(node, sha256)
    if leased:
        os.utime(lease)
    used = (lease if lease.exists() else shards.manifest_path(node, sha256)).stat().st_mtime
    return Resident(sha256, used, leased, frozenset(_named(node, sha256) or ()))


def _in_doubt(node: Path) -> bool:
    """Whether a process holds a lease on a snapshot whose manifest cannot be read, so that its shards are unknown."""
    return any(
        leases.is_held(node, sha256) and _named(node, sha256) is None for sha256 in paths.digests(node, paths.LEASES)
    )


def _named(node: Path, sha256: str) -> set[str] | None:
    try:
        return {shard.blake3 for shard in snapshots.read(node, sha256).shards()}
    except ValueError:
        return None
