"""Verification: a checkpoint's manifest and files, compared with the hashes on record.

A commit records the SHA-256 of the manifest, and the manifest records the size and the BLAKE3 of every file: a
checkpoint that verifies is the one that was committed. Every reader of a checkpoint verifies it here before it uses
a byte: the files on disk (`verify_file`, `read_files`), and a copy on its way between tiers (`verified_chunks`).
"""

from collections.abc import Iterator
from pathlib import Path

from slipway.trainer.base import verify
from slipway.trainer.checkpoint.disk import reading
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile, CheckpointManifest, decode
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint, finding_damage


def read_manifest(folder: Path, sha256: str) -> CheckpointManifest:
    """The manifest of the checkpoint in `folder`. Raises DamagedCheckpoint unless it has this SHA-256."""
    path = folder / MANIFEST
    return verified_manifest(bytes(reading.read(path)), sha256, str(path))


def verified_manifest(data: bytes, sha256: str, name: str) -> CheckpointManifest:
    """The manifest in `data`.

    Raises DamagedCheckpoint, with the name `name`, unless it has this SHA-256; and ValueError for another format: the
    manifest is then whole, and for another version.
    """
    with finding_damage(name):
        verify.check_sha256(data, sha256, name)
    try:
        return decode(data)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def read_files(folder: Path, sha256: str) -> dict[str, bytes]:
    """All files of the checkpoint in `folder`, by name; every byte is verified before any is returned.

    `sha256` is the manifest's. Raises DamagedCheckpoint.
    """
    described = read_manifest(folder, sha256).files
    return {name: read_file(folder / name, expected) for name, expected in described.items()}


def verify_file(path: Path, expected: CheckpointFile) -> None:
    """Raises DamagedCheckpoint unless the file has the expected size and hash; OSError if it cannot be read."""
    with finding_damage(path):
        verify.file(path, expected)


def verified_chunks(chunks: Iterator[bytes], expected: CheckpointFile, name: str) -> Iterator[bytes]:
    """The chunks of one file, hashed as they pass.

    Raises DamagedCheckpoint, at the latest after the last one, unless the file has the expected size and hash.
    """
    try:
        yield from verify.passing(chunks, expected, name)
    except verify.Mismatch as error:
        raise DamagedCheckpoint(str(error)) from None


def read_file(path: Path, expected: CheckpointFile) -> bytes:
    """The verified bytes of one file. Raises as `verify_file`."""
    data = bytes(reading.read(path))
    with finding_damage(path):
        verify.data(data, expected, path)
    return data
