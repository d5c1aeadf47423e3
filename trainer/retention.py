"""Retention: what goes from a node's NVMe, so that it never runs full and nothing in use is ever removed.

Snapshots that were not used for some days go, then the least recently used ones until the rest fits; a snapshot
under a lease stays, and so does a shard that a staying snapshot names. By hand: ``python -m trainer.retention``.
"""

import argparse
import dataclasses
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer import leases, lock, nvme, shards, snapshots

_SUFFIXES = {"snapshots": ".json", "shards": ".shard", "leases": ""}
DAY = 86_400.0


@dataclass(frozen=True)
class Resident:
    """A snapshot on the NVMe."""

    sha256: str
    used: float
    """When it was last used, seconds since the epoch; as long as it is leased, now."""
    leased: bool
    shards: frozenset[str]
    """BLAKE3 of the shards that it names, whether they are there or not."""


@dataclass(frozen=True)
class Retained:
    """What a retention removed and what stays; in a dry run, what it would have removed."""

    removed_snapshots: tuple[str, ...]
    removed_shards: int
    removed_bytes: int
    removed_partial: int
    kept_snapshots: int
    kept_bytes: int
    leased_snapshots: int


def condemned(residents: Sequence[Resident], sizes: Mapping[str, int], most_bytes: float, oldest: float) -> list[str]:
    """The snapshots that are to go, least recently used first: used before `oldest`, or one too many for the space.

    `sizes` are the bytes of each shard that is there. Leased snapshots count, and stay.
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
    """Bring what lies on the NVMe folder `node` under the limits, as far as leases allow.

    Nobody can begin to use a snapshot meanwhile (it takes as long as removing files does). Partial files that
    nobody continued for `days` go too, and so do shards that no snapshot names. Raises OSError.
    """
    oldest = time.time() - days * DAY
    with lock.exclusive(node / "leases"):
        sizes = _names(node, "shards")
        residents = [_resident(node, sha256) for sha256 in _names(node, "snapshots")]
        going = condemned(residents, sizes, gigabytes * 1e9, oldest)
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
    """Remove what says that a snapshot is there before its shards: killed in between, all that is said is true."""
    for sha256 in going:
        for path in (node / "staged" / f"{sha256}.json", shards.manifest_path(node, sha256)):
            path.unlink(missing_ok=True)
        leases.lease_path(node, sha256).unlink(missing_ok=True)
    for shard in surplus:
        (node / "shards" / f"{shard}.shard").unlink()
    for path in node.glob("verified/*.journal"):
        if path.stem != nvme.boot():
            path.unlink()


def _resident(node: Path, sha256: str) -> Resident:
    """A snapshot as it is now; one whose manifest is damaged names no shards. A use that goes on is noted."""
    lease, leased = leases.lease_path(node, sha256), leases.is_held(node, sha256)
    if leased:
        os.utime(lease)
    used = (lease if lease.exists() else shards.manifest_path(node, sha256)).stat().st_mtime
    return Resident(sha256, used, leased, frozenset(_named(node, sha256) or ()))


def _in_doubt(node: Path) -> bool:
    """Whether somebody holds a lease on a snapshot of which nobody can say what its shards are."""
    return any(leases.is_held(node, sha256) and _named(node, sha256) is None for sha256 in _names(node, "leases"))


def _named(node: Path, sha256: str) -> set[str] | None:
    try:
        return {shard.blake3 for shard in snapshots.read(node, sha256).shards()}
    except ValueError:
        return None


def _names(node: Path, kind: str) -> dict[str, int]:
    """The digests that name the files of a kind, with the files' bytes; what is not named so is not ours."""
    try:
        entries = list(os.scandir(node / kind))
    except FileNotFoundError:
        return {}
    pattern = re.compile(f"([0-9a-f]{{64}}){re.escape(_SUFFIXES[kind])}")
    named = ((pattern.fullmatch(entry.name), entry) for entry in entries)
    return {match[1]: entry.stat().st_size for match, entry in named if match}


def main(arguments: list[str] | None = None) -> int:
    """Bring one node's NVMe under the limits and print what was done as one JSON line; 1 and a message if it fails."""
    parser = argparse.ArgumentParser(prog="python -m trainer.retention", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nvme", type=Path, required=True, help="folder on the node's NVMe")
    parser.add_argument("--gigabytes", type=float, required=True, help="most that may lie there")
    parser.add_argument("--days", type=float, required=True, help="unused for longer, a snapshot goes")
    parser.add_argument("--dry-run", action="store_true", help="remove nothing, say what would go")
    options = parser.parse_args(arguments)
    try:
        retained = retain(options.nvme, options.gigabytes, options.days, options.dry_run)
    except OSError as error:
        print(f"retention: {error}", file=sys.stderr)
        return 1
    print(json.dumps(dataclasses.asdict(retained)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
