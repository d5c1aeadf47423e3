"""Copying a checkpoint between a folder and a tier, verified on its way.

Each file is hashed while it is read, and compared with the manifest; an object store also checks the bytes that reach
it. The manifest comes last, so a copy is visible whole or not at all.
"""

import contextlib
import shutil
import tempfile
from pathlib import Path

from slipway.trainer.base import atomic, regular_file
from slipway.trainer.checkpoint.disk import encryption
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.resealing import RECORD
from slipway.trainer.checkpoint.disk.verification import verified_chunks, verified_manifest
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.object_tier import ObjectTier
from slipway.trainer.checkpoint.tiers.tier import Tier, TierSource


def tier_at(where: str | Path) -> Tier:
    """The tier at a folder or at s3://bucket/prefix; it contacts nothing yet. Raises ValueError for another URL."""
    scheme, separator, _ = str(where).partition("://")
    if separator and scheme != "s3":
        raise ValueError(f"{where}: found {scheme}://, expected a folder or s3://bucket/prefix")
    return ObjectTier(str(where)) if separator else FolderTier(Path(where))


def replicate(source: Path, target: Tier, folder: str, manifest: str) -> int:
    """Copy the checkpoint in the folder `source`, whose manifest has this SHA-256, to a tier; returns its bytes.

    Raises DamagedCheckpoint if the source differs from the commit, and TierUnavailable; neither leaves a visible copy.
    """
    source_tier = FolderTier(source.parent)
    data = b"".join(source_tier.read(source.name, MANIFEST))
    described = verified_manifest(data, manifest, str(source / MANIFEST))
    for name, expected in described.files.items():
        chunks = verified_chunks(source_tier.read(source.name, name), expected, str(source / name))
        target.put(folder, name, chunks, expected)
    target.finish(folder, data)
    if (source / RECORD).exists():
        target.amend(folder, RECORD, b"".join(source_tier.read(source.name, RECORD)))
    return len(data) + described.bytes


def replicate_share(source: Path, target: FolderTier, folder: str, manifest: str) -> int:
    """Copy the files of a checkpoint that are in the folder `source` and that no other node has copied before.

    Returns the checkpoint's bytes when the nodes together have copied all of it, and 0 before. It skips a damaged file:
    the node with its copy copies it. Raises DamagedCheckpoint for the manifest, and TierUnavailable.
    """
    source_tier = FolderTier(source.parent)
    data = b"".join(source_tier.read(source.name, MANIFEST))
    described = verified_manifest(data, manifest, str(source / MANIFEST))
    if not target.holds(folder):
        for name, expected in target.lacks(folder, described.files).items():
            if (source / name).exists():
                with contextlib.suppress(DamagedCheckpoint):
                    chunks = verified_chunks(source_tier.read(source.name, name), expected, str(source / name))
                    target.put_shared(folder, name, chunks)
        if target.lacks(folder, described.files):
            return 0
        target.finish(folder, data)
    return len(data) + described.bytes


def fetch(source: TierSource, folder: str, manifest: str, into: Path) -> None:
    """Copy a checkpoint from a tier to the folder `into`, which becomes visible in one step.

    `manifest` is the SHA-256 of its manifest. Raises DamagedCheckpoint if the copy differs from the commit,
    TierUnavailable, and OSError if `into` cannot be written.
    """
    where = f"{source}/{folder}"
    data = b"".join(source.read(folder, MANIFEST))
    files = verified_manifest(data, manifest, f"{where}/{MANIFEST}").files
    into.parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        for name, expected in files.items():
            chunks = verified_chunks(source.read(folder, name), expected, f"{where}/{name}")
            atomic.write(hidden / name, chunks)
        if any(_is_encrypted(hidden / name) for name in files):
            with contextlib.suppress(DamagedCheckpoint):  # raised if its keys were never replaced
                atomic.write(hidden / RECORD, source.read(folder, RECORD))
        atomic.write(hidden / MANIFEST, [data])
        hidden.chmod(0o755)
        atomic.show(hidden, into)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def bring_keys(durable: Path, into: Path) -> None:
    """Copy the record of replaced keys, if there is one, from a checkpoint in `durable` to its copy in `into`.

    Raises OSError.
    """
    try:
        data = regular_file.read(durable / RECORD)
    except (FileNotFoundError, NotADirectoryError):
        return
    atomic.replace(into / RECORD, data)


def _is_encrypted(path: Path) -> bool:
    with path.open("rb") as file:
        return encryption.is_encrypted(file.read(len(encryption.MAGIC)))
