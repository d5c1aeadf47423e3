"""Retention: which snapshots are removed from a node's NVMe, so that it never runs full and no snapshot in use goes.

Retention removes the snapshots that were not used for some days, then the least recently used ones until the rest fits.
A snapshot under a lease stays, and so does a shard that a staying snapshot names. By hand: `slipway
nodes clean`.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.base import lock, paths, removal
from trainer.data import shards, snapshots
from trainer.staging import leases, nvme

DAY = 86_400.0


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
    """What a retention removed and what stays; in a dry run, what it would remove."""

    removed_snapshots: tuple[str, ...]
    removed_shards: int
    removed_bytes: int
    removed_partial: int
    kept_snapshots: int
    kept_bytes: int
    leased_snapshots: int


def snapshots_to_remove(
    residents: Sequence[Resident], sizes: Mapping[str, int], most_bytes: float, oldest: float
) -> list[str]:
    """The snapshots to remove, the least recently used first: last used before `oldest`, or too many for `most_bytes`.

    `sizes` are the bytes of each shard on the NVMe. Leased snapshots count, and stay.
    """
    users = Counter(shard for resident in residents for shard in resident.shards)
    total, going = sum(sizes[shard] for shard in users if shard in sizes), []
    for resident in sorted(residents, key=lambda resident: (resident.used, resident.sha256)):
        if resident.leased or (resident.used >= oldest and total <= most_bytes):
            continue
        going.append(resident.sha256)
        users.subtract(resident.shards)
        total -= sum(sizes.get(shard, 0) for shard in resident.shards if users[shard] == 0)
    return going


def retain(node: Path, gigabytes: float, days: float, dry_run: bool = False) -> Retained:
    """Bring the NVMe folder `node` under the limits, as far as leases allow.

    No process can begin to use a snapshot meanwhile, which takes as long as the removal of files. Partial files that
    no staging continued for `days` go too, and so do shards that no snapshot names. Raises OSError.
    """
    oldest = time.time() - days * DAY
    with lock.exclusive(node / paths.LEASES):
        sizes = paths.digests(node, paths.SHARDS)
        residents = [_resident(node, sha256) for sha256 in paths.digests(node, paths.SNAPSHOTS)]
        going = snapshots_to_remove(residents, sizes, gigabytes * 1e9, oldest)
        staying = [resident for resident in residents if resident.sha256 not in going]
        named = {shard for resident in staying for shard in resident.shards}
        in_doubt = _in_doubt(node)
        surplus = [shard for shard in sizes if shard not in named and not in_doubt]
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


def _resident(node: Path, sha256: str) -> Resident:
    """A snapshot as it is now; a snapshot with a damaged manifest names no shards. Notes a use that goes on."""
    lease, leased = paths.lease(node, sha256), leases.is_held(node, sha256)
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
