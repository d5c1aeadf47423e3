"""Paths: the places of shards, manifests and checkpoints on every tier, and of the other files on a node's NVMe.

Only this module has these names; `slipway.trainer.record.files` has those of a training's records.

    shards/<blake3>.shard                   on every tier that has snapshots, as are the manifests
    snapshots/<sha256>.json
    checkpoints/<training>/<step>.<token>/  on every tier that has checkpoints
    compiled/<training>/                    on the NVMe alone: the compiler's cache for a training's restarts
    partial/<name>                          on the NVMe alone: copies that are not complete
    verified/<boot>.journal                 the shards that were found whole in one boot of the machine
    staged/<sha256>.json                    the markers of staged snapshots
    staged/<sha256>/<node>.json             on the durable tier alone: the receipts of the nodes that hold a snapshot
    leases/<sha256>                         a process that reads a snapshot locks its file here
    held/<id>.json                          the shards that a window holds at present; its process locks the file
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import slipway
from slipway.trainer.base.digest import checked

SHARDS = "shards"
SNAPSHOTS = "snapshots"
CHECKPOINTS = "checkpoints"
PARTIAL = "partial"
VERIFIED = "verified"
STAGED = "staged"
LEASES = "leases"
SHARD_LEASES = "held"
COMPILED = "compiled"
SUFFIXES = {SHARDS: ".shard", SNAPSHOTS: ".json", STAGED: ".json", LEASES: ""}
"""The suffix after the digest in the file names of each folder."""
PUBLISHED = re.compile(r"shards/[0-9a-f]{64}\.shard|snapshots/[0-9a-f]{64}\.json")
"""The names of the files that a tier gives to others."""
CHECKPOINT_FILE = re.compile(
    r"checkpoints/\w[\w.-]*/(\d{9}\.\d{6}\.\d{4}|\.\d{9}\.\d{6}\.\d{4}\.partial)/\w[\w.-]*", re.A
)
"""The names of a checkpoint's files, which a node gives to the others, even while the checkpoint is being saved."""
CODE = Path(slipway.__file__).parents[1].resolve()


def named(folder: str, name: str) -> str:
    """The file of a digest in one of the folders of `SUFFIXES`, relative to its tier.

    Raises ValueError for a name that is no digest, so no name leads out of its folder.
    """
    return f"{folder}/{checked(name)}{SUFFIXES[folder]}"


def digests(tier: Path, folder: str) -> dict[str, int]:
    """The digests that have files in one of the folders of `SUFFIXES`, with the bytes of the files.

    Files of other names are ignored.
    """
    suffix = re.escape(SUFFIXES[folder])
    return {
        match[1]: entry.stat().st_size
        for entry in _entries(tier / folder)
        if (match := re.fullmatch(f"([0-9a-f]{{64}}){suffix}", entry.name))
    }


def checkpoints(training: str) -> str:
    """The folder of a training's checkpoints, relative to its tier."""
    return f"{CHECKPOINTS}/{training}"


def compiled(training: str) -> str:
    """The folder of the compiler's caches of a training, relative to a node's NVMe."""
    return f"{COMPILED}/{training}"


def lease(nvme: Path, sha256: str) -> Path:
    """The file whose lock is a lease of a snapshot. Raises ValueError if it is no digest, as `marker`."""
    return nvme / named(LEASES, sha256)


def marker(nvme: Path, sha256: str) -> Path:
    """The file with the time at which a snapshot, or a part of it, was staged."""
    return nvme / named(STAGED, sha256)


def receipts(durable: Path, sha256: str) -> Path:
    """The folder that has a receipt for each node that holds a snapshot."""
    return durable / STAGED / checked(sha256)


def partial(nvme: Path, name: str) -> Path:
    """The growing copy of a file of this name."""
    return nvme / PARTIAL / name


def verified(nvme: Path, boot: str) -> Path:
    """The journal of the shards that were found whole in this boot of the machine."""
    return nvme / VERIFIED / f"{boot}.journal"


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    try:
        yield from os.scandir(folder)
    except FileNotFoundError:
        return
