"""Tiers: the places beyond the NVMe that hold checkpoints, a folder or a prefix of an object store, as one interface.

A copy is hashed while it is read and compared with the manifest, the object store checks what reaches it, and the
manifest comes last: a checkpoint is on a tier whole or not at all, and so is each copy fetched from one.
"""

import errno
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from blake3 import blake3

from trainer import atomic, digest, uploads
from trainer.checkpoint.files import Damaged
from trainer.checkpoint.format import MANIFEST
from trainer.checkpoint.manifest import File, Manifest, decode
from trainer.objects import Bucket, Conflict
from trainer.origins import Missing, Unreachable

CHUNK = 1 << 20


class Unavailable(Exception):
    """A tier cannot take or give what it is asked for (full, read-only, away); the message says which and why."""


class Source(Protocol):
    """Where files of checkpoints are read, by the names of their folders and their own."""

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        """A file's bytes, not verified. Raises Damaged when it is missing, and Unavailable."""


class Tier(Source, Protocol):
    """Holds checkpoints by the names of their folders. All of it raises Unavailable."""

    def put(self, folder: str, name: str, chunks: Iterator[bytes], expected: File) -> None:
        """One file of a checkpoint that is not visible yet; `expected` is what the manifest says of it.

        Several processes may put files of one checkpoint. What `chunks` raises leaves no file.
        """

    def finish(self, folder: str, manifest: bytes) -> None:
        """Make the checkpoint visible, once all of its files were put; done already, nothing changes."""

    def holds(self, folder: str) -> bool:
        """Whether the checkpoint is there, visible."""

    def remove(self, folder: str) -> None:
        """Remove what is there of the checkpoint; nothing may be."""

    def folders(self, under: str) -> dict[str, float]:
        """The visible checkpoints whose names begin with `under` and a slash, each with the time of its manifest."""


def tier(where: str | Path) -> Tier:
    """The tier at a folder or s3://bucket/prefix; nothing is asked yet. Raises ValueError for another URL."""
    scheme, separator, _ = str(where).partition("://")
    if separator and scheme != "s3":
        raise ValueError(f"{where}: found {scheme}://, expected a folder or s3://bucket/prefix")
    return ObjectTier(str(where)) if separator else FolderTier(Path(where))


def replicate(source: Path, target: Tier, folder: str, manifest: str) -> int:
    """Copy the checkpoint in the folder `source`, whose manifest has this SHA-256, to a tier; returns its bytes.

    Raises Damaged when the source is not what was committed, and Unavailable; neither leaves a visible copy.
    """
    there = FolderTier(source.parent)
    data = b"".join(there.read(source.name, MANIFEST))
    described = read_manifest(data, manifest, str(source / MANIFEST))
    for name, expected in described.files.items():
        target.put(folder, name, verified(there.read(source.name, name), expected, str(source / name)), expected)
    target.finish(folder, data)
    return len(data) + described.bytes


def fetch(source: Source, folder: str, manifest: str, into: Path, names: Collection[str] | None = None) -> None:
    """Bring a checkpoint (of its files, these alone) from a tier to the folder `into`, in one visible step.

    Raises Damaged when it is not what was committed, Unavailable, and OSError where `into` cannot be written.
    """
    where = f"{source}/{folder}"
    data = b"".join(source.read(folder, MANIFEST))
    files = read_manifest(data, manifest, f"{where}/{MANIFEST}").files
    into.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{into.name}.", dir=into.parent))
    try:
        for name in names or files:
            chunks = verified(source.read(folder, name), files[name], f"{where}/{name}")
            (partial / name).parent.mkdir(parents=True, exist_ok=True)
            _write_durably(partial / name, chunks)
        _write_durably(partial / MANIFEST, iter([data]))
        partial.chmod(0o755)
        _show(partial, into)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def verified(chunks: Iterator[bytes], expected: File, name: str) -> Iterator[bytes]:
    """The chunks, hashed as they pass. Raises Damaged at their end unless they are what the manifest says."""
    hasher, size = blake3(), 0
    for chunk in chunks:
        hasher.update(chunk)
        size += len(chunk)
        yield chunk
    if size != expected.bytes:
        raise Damaged(f"{name}: found {size} bytes, expected {expected.bytes}")
    if (found := hasher.hexdigest()) != expected.blake3:
        raise Damaged(f"{name}: found BLAKE3 {found[:16]}..., expected {expected.blake3[:16]}...")


def read_manifest(data: bytes, sha256: str, name: str) -> Manifest:
    """The manifest in `data`. Raises Damaged unless it has this SHA-256."""
    found = digest.sha256(data)
    if found != sha256:
        raise Damaged(f"{name}: found SHA-256 {found[:16]}..., expected {sha256[:16]}...")
    return decode(data)


class FolderTier:
    """A folder of a file system. A checkpoint grows in a hidden folder beside its place, and is renamed there."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def put(self, folder: str, name: str, chunks: Iterator[bytes], expected: File) -> None:
        path = self._partial(folder) / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_durably(path, chunks)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise _unavailable(path, error) from error
        except Damaged:
            path.unlink(missing_ok=True)
            raise

    def finish(self, folder: str, manifest: bytes) -> None:
        partial = self._partial(folder)
        try:
            if not self.holds(folder):
                _write_durably(partial / MANIFEST, iter([manifest]))
                _show(partial, self._root / folder)
            shutil.rmtree(partial, ignore_errors=True)
        except OSError as error:
            raise _unavailable(partial, error) from error

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        path = self._root / folder / name
        try:
            with open(path, "rb") as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR) and self._root.is_dir():
                raise Damaged(f"{path}: cannot be read: {error.strerror}") from error
            raise _unavailable(path, error) from error

    def holds(self, folder: str) -> bool:
        return (self._root / folder / MANIFEST).exists()

    def remove(self, folder: str) -> None:
        """The manifest goes first: what is left of a removal that was broken off is no checkpoint."""
        for path in (self._root / folder, self._partial(folder)):
            try:
                (path / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                raise _unavailable(path, error) from error

    def folders(self, under: str) -> dict[str, float]:
        found = sorted((self._root / under).glob(f"[!.]*/{MANIFEST}"))
        return {f"{under}/{path.parent.name}": path.stat().st_mtime for path in found}

    def _partial(self, folder: str) -> Path:
        path = self._root / folder
        return path.with_name(f".{path.name}.partial")


class Nodes:
    """The NVMe of some nodes, read as one: each holds the files of its own ranks."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def __str__(self) -> str:
        return ", ".join(map(str, self._folders))

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        for root in self._folders:
            if (root / folder / name).exists():
                return FolderTier(root).read(folder, name)
        raise Damaged(f"{folder}/{name}: found on none of {self}")


class ObjectTier:
    """A prefix of an object store. Each object is created once; the manifest, the last one, makes the checkpoint."""

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url)

    def __str__(self) -> str:
        return str(self._bucket)

    def put(self, folder: str, name: str, chunks: Iterator[bytes], expected: File) -> None:
        try:
            uploads.create(self._bucket, f"{folder}/{name}", chunks, expected.bytes, expected.blake3)
        except (Unreachable, Conflict) as error:
            raise Unavailable(str(error)) from error

    def finish(self, folder: str, manifest: bytes) -> None:
        self.put(folder, MANIFEST, iter([manifest]), File(len(manifest), digest.of_bytes(manifest)))

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        try:
            with self._bucket.open(f"{folder}/{name}") as stream:
                while chunk := stream.read(CHUNK):
                    yield chunk
        except Missing as error:
            raise Damaged(str(error)) from error
        except (Unreachable, Conflict) as error:
            raise Unavailable(str(error)) from error

    def holds(self, folder: str) -> bool:
        try:
            self._bucket.head(f"{folder}/{MANIFEST}")
        except Missing:
            return False
        except Unreachable as error:
            raise Unavailable(str(error)) from error
        return True

    def remove(self, folder: str) -> None:
        """The manifest goes first, as in a folder."""
        try:
            keys = [found.key for found in Bucket(self._bucket.url(folder)).objects()]
            for key in sorted(keys, key=lambda key: key != MANIFEST):
                self._bucket.call("delete_object", f"{folder}/{key}")
        except (Missing, Unreachable) as error:
            raise Unavailable(str(error)) from error

    def folders(self, under: str) -> dict[str, float]:
        try:
            found = [each for each in Bucket(self._bucket.url(under)).objects() if each.key.endswith(f"/{MANIFEST}")]
        except (Missing, Unreachable) as error:
            raise Unavailable(str(error)) from error
        return {f"{under}/{each.key.removesuffix(f'/{MANIFEST}')}": each.modified for each in found}


def _write_durably(path: Path, chunks: Iterator[bytes]) -> None:
    with open(path, "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def _show(partial: Path, folder: Path) -> None:
    """Rename a folder with everything in it to its place; one that is there already stays."""
    atomic.sync_folder(partial)
    try:
        partial.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    atomic.sync_folder(folder.parent)


def _unavailable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(f"{path}: {error.strerror}")
