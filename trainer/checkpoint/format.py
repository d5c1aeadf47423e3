"""A folder of named files and a manifest with the hash of every byte: checkpoints, and exports of them.

The folder appears by one rename with everything in it on disk. Its name on record is the manifest's SHA-256, kept
in the commit: a checkpoint that verifies is the one that was committed. See `trainer.checkpoint.manifest`.
"""

import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path

from trainer import atomic, digest
from trainer.checkpoint import files as reading
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.manifest import File, Manifest, decode

MANIFEST = "MANIFEST.json"
LAYOUT = "chunks/1"
"""Of a training's checkpoints."""
PROGRESS = "progress.json"
__all__ = [
    "LAYOUT",
    "MANIFEST",
    "PROGRESS",
    "Damaged",
    "publish",
    "read",
    "read_manifest",
    "sweep",
    "write",
    "write_file",
]


def write(folder: Path, layout: str, files: Mapping[str, bytes]) -> str:
    """Write small files to the new folder `folder` in one visible step; returns the manifest's SHA-256.

    `layout` says what the files hold ("huggingface.llama/1"). Raises OSError (a full disk, say) and leaves nothing.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        described = {name: File(len(data), digest.of_bytes(data)) for name, data in files.items()}
        for name, data in files.items():
            write_file(temporary / name, data)
        temporary.chmod(0o755)
        return publish(temporary, folder, Manifest(layout, described))
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def publish(temporary: Path, folder: Path, manifest: Manifest) -> str:
    """Make a folder whose files are on disk visible under its name; returns the manifest's SHA-256. Raises OSError."""
    data = manifest.encode()
    write_file(temporary / MANIFEST, data)
    atomic.sync_folder(temporary)
    temporary.rename(folder)
    atomic.sync_folder(folder.parent)
    return digest.sha256(data)


def write_file(path: Path, data: bytes) -> None:
    """Write a file and have it on disk."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sweep(folder: Path) -> None:
    """Remove what killed writers have left in `folder`; a superseded one that still writes there fails."""
    for left in folder.glob(".*"):
        shutil.rmtree(left, ignore_errors=True)


def read(folder: Path, manifest_sha256: str, names: Collection[str] | None = None) -> dict[str, bytes]:
    """The files of a folder (these alone), every byte verified before any is returned. Raises Damaged."""
    described = read_manifest(folder, manifest_sha256).files
    return {name: _read_verified(folder / name, described[name]) for name in names or described}


def read_manifest(folder: Path, manifest_sha256: str) -> Manifest:
    """The verified manifest. Raises Damaged."""
    path = folder / MANIFEST
    data = bytes(reading.read(path))
    found = digest.sha256(data)
    if found != manifest_sha256:
        raise Damaged(f"{path}: found SHA-256 {found[:16]}..., expected {manifest_sha256[:16]}...")
    try:
        return decode(data)
    except ValueError as error:
        raise Damaged(f"{path}: {error}") from None


def _read_verified(path: Path, expected: File) -> bytes:
    data = bytes(reading.read(path))
    if len(data) != expected.bytes:
        raise Damaged(f"{path}: found {len(data)} bytes, expected {expected.bytes}")
    found = digest.of_bytes(data)
    if found != expected.blake3:
        raise Damaged(f"{path}: found BLAKE3 {found[:16]}..., expected {expected.blake3[:16]}...")
    return data
