"""The checkpoint's folder: named files, and a manifest that holds the hash of every byte.

``<durable>/checkpoints/<training>/<step>.<token>/`` with ``MANIFEST.json``: format, layout, each file's
size and BLAKE3. The folder appears by one rename with everything in it on disk. Its name on record is the
manifest's SHA-256, kept in the commit: a checkpoint that verifies is the one that was committed.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from trainer import atomic, digest

FORMAT = "slipway.checkpoint/1"
MANIFEST = "MANIFEST.json"
LAYOUT = "safetensors/1"
"""Of a training's checkpoints: these files."""
MODEL, OPTIMISER, PROGRESS = "model.safetensors", "optimiser.safetensors", "progress.json"


class Damaged(Exception):
    """A checkpoint is not what was committed; the message says which file, what was found and expected."""


def write(folder: Path, layout: str, files: Mapping[str, bytes]) -> str:
    """Write a checkpoint to `folder` in one visible step; returns the manifest's SHA-256.

    `layout` says what the files hold ("safetensors/1"). Raises OSError (a full disk, say) and leaves nothing.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        described = {name: {"bytes": len(data), "blake3": digest.of_bytes(data)} for name, data in files.items()}
        manifest = atomic.canonical_json({"format": FORMAT, "layout": layout, "files": described})
        for name, data in {**files, MANIFEST: manifest}.items():
            _write_durably(temporary / name, data)
        atomic.sync_folder(temporary)
        temporary.chmod(0o755)
        temporary.rename(folder)
        atomic.sync_folder(folder.parent)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return digest.sha256(manifest)


def sweep(folder: Path) -> None:
    """Remove what killed writers have left in `folder`; a superseded one that still writes there fails."""
    for left in folder.glob(".*"):
        shutil.rmtree(left, ignore_errors=True)


def read(folder: Path, manifest_sha256: str, names: Collection[str] | None = None) -> dict[str, bytes]:
    """The files of a checkpoint (these alone), every byte verified before any is returned. Raises Damaged."""
    described = read_manifest(folder, manifest_sha256)["files"]
    return {name: _read_verified(folder / name, described[name]) for name in names or described}


def read_manifest(folder: Path, manifest_sha256: str) -> dict[str, Any]:
    """The verified manifest. Raises Damaged."""
    data = _read(folder / MANIFEST)
    found = digest.sha256(data)
    if found != manifest_sha256:
        raise Damaged(f"{folder / MANIFEST}: found SHA-256 {found[:16]}..., expected {manifest_sha256[:16]}...")
    manifest: dict[str, Any] = json.loads(data)
    if manifest["format"] != FORMAT:
        raise Damaged(f"{folder / MANIFEST}: found format {manifest['format']}, expected {FORMAT}")
    return manifest


def expect_layout(folder: Path, manifest_sha256: str, layout: str) -> None:
    """Raises ValueError for a checkpoint that holds something else than `layout` says, and Damaged."""
    found = read_manifest(folder, manifest_sha256)["layout"]
    if found != layout:
        raise ValueError(f"{folder}: found the layout {found!r}, expected {layout!r}")


def _read_verified(path: Path, entry: Mapping[str, Any]) -> bytes:
    data = _read(path)
    if len(data) != entry["bytes"]:
        raise Damaged(f"{path}: found {len(data)} bytes, expected {entry['bytes']}")
    found = digest.of_bytes(data)
    if found != entry["blake3"]:
        raise Damaged(f"{path}: found BLAKE3 {found[:16]}..., expected {entry['blake3'][:16]}...")
    return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path}: cannot be read: {error.strerror}") from error


def _write_durably(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
