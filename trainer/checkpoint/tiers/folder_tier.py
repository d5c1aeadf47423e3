"""A tier in a folder of a file system, and the NVMe folders of several nodes read as one.

A copy grows in a hidden folder beside its final one, and is renamed when every file of its manifest is there. The
name of the hidden folder is reserved for copies, so that writers that remove the files of failed saves ignore it.

A person makes the folder of a tier, once; this module never does. If it does not exist, its disk is not mounted, and
all writes would fill the disk below.
"""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slipway.trainer.base import atomic, listing, removal, verify
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile, decode
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint, proves_absence
from slipway.trainer.checkpoint.tiers import fetching
from slipway.trainer.checkpoint.tiers.tier import TierUnavailable


class FolderTier:
    """A `Tier` in the folder `root`, which must exist."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __str__(self) -> str:
        return str(self._root)

    def put(self, folder: str, name: str, chunks: Iterator[bytes], expected: CheckpointFile) -> None:
        path = self._partial(folder) / name
        self._require_root()
        try:
            atomic.write(path, chunks)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise _unavailable(path, error) from error
        except DamagedCheckpoint:
            path.unlink(missing_ok=True)
            raise

    def put_shared(self, folder: str, name: str, chunks: Iterator[bytes]) -> None:
        """As `put`, for a file that several nodes may put at the same time: it appears whole or not at all."""
        path = self._partial(folder) / name
        self._require_root()
        try:
            fetching.keep(chunks, path)
        except OSError as error:
            raise _unavailable(path, error) from error

    def lacks(self, folder: str, files: Mapping[str, CheckpointFile]) -> dict[str, CheckpointFile]:
        """The files of an invisible checkpoint that are not put yet. Raises TierUnavailable."""
        partial = self._partial(folder)
        self._require_root()
        try:
            return {name: file for name, file in files.items() if publication.missing(partial, {name: file})}
        except OSError as error:
            raise _unavailable(partial, error) from error

    def amend(self, folder: str, name: str, data: bytes) -> None:
        path = self._root / folder / name
        self._require_root()
        try:
            atomic.replace(path, data)
        except OSError as error:
            raise _unavailable(path, error) from error

    def finish(self, folder: str, manifest: bytes) -> None:
        """As `Tier.finish`. If a file that was put is gone, raises TierUnavailable and makes nothing visible."""
        partial = self._partial(folder)
        visible = self._root / folder
        files = decode(manifest).files
        self._require_root()
        try:
            if self.holds(folder) and publication.missing(visible, files):
                removal.remove_folder(self._root, folder, MANIFEST)
            if not self.holds(folder):
                atomic.write(partial / MANIFEST, [manifest])
                publication.require_whole(partial, files)
                atomic.show(partial, visible)
            shutil.rmtree(partial, ignore_errors=True)
            # Check again: a removal of the hidden folder that had begun may have continued in the visible one.
            publication.require_whole(visible, files)
        except OSError as error:
            raise _unavailable(partial, error) from error

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        path = self._root / folder / name
        try:
            yield from verify.blocks(path)
        except OSError as error:
            if proves_absence(path):
                raise DamagedCheckpoint(f"{path}: cannot be read: {error.strerror}") from error
            raise _unavailable(path, error) from error

    def holds(self, folder: str) -> bool:
        path = self._root / folder / MANIFEST
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            return False
        except OSError as error:
            raise _unavailable(path, error) from error
        return True

    def remove(self, folder: str) -> None:
        """Remove the manifest first, so that a folder after an interrupted removal is no checkpoint."""
        self._require_root()
        for path in (self._root / folder, self._partial(folder)):
            try:
                removal.remove_folder(self._root, str(path.relative_to(self._root)), MANIFEST)
            except OSError as error:
                raise _unavailable(path, error) from error

    def folders(self, under: str) -> dict[str, float]:
        modified_times = dict[str, float]()
        self._require_root()
        try:
            for name in listing.names_if_there(self._root / under):
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    modified_times[f"{under}/{name}"] = (self._root / under / name / MANIFEST).stat().st_mtime
        except OSError as error:
            raise _unavailable(self._root / under, error) from error
        return modified_times

    def unfinished(self, under: str) -> list[str]:
        self._require_root()
        parent = self._root / under
        present: list[str] = []
        try:
            if parent.exists():
                present = [path.name for path in parent.iterdir() if path.is_dir()]
        except OSError as error:
            raise _unavailable(parent, error) from error
        hidden = [name for name in present if name.startswith(".")]
        begun = [name[1:].removesuffix(".copy") for name in hidden if name.endswith(".copy")]
        names = {f"{under}/{name}" for name in {*present, *begun} - {*hidden}}
        return sorted(name for name in names if not self.holds(name))

    def _require_root(self) -> None:
        """Raises TierUnavailable if the tier's folder does not exist, which proves nothing about its checkpoints."""
        try:
            if not listing.is_folder(self._root):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        except OSError as error:
            raise _unavailable(
                self._root, error, "expected the tier's folder: mount its disk, or make it once"
            ) from error

    def _partial(self, folder: str) -> Path:
        path = self._root / folder
        return path.with_name(f".{path.name}.copy")


class NodesTier:
    """The NVMe folders of some nodes, read as one `TierSource`: each holds the files of its own ranks."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders

    def __str__(self) -> str:
        return ", ".join(map(str, self._folders))

    def read(self, folder: str, name: str) -> Iterator[bytes]:
        for root in self._folders:
            if root.is_dir() and FolderTier(root).holds(folder) and (root / folder / name).exists():
                return FolderTier(root).read(folder, name)
        raise DamagedCheckpoint(f"{folder}/{name}: found on none of {self}")


def _unavailable(path: Path, error: OSError, expected: str = "") -> TierUnavailable:
    return TierUnavailable(", ".join(filter(None, (f"{path}: {error.strerror}", expected))))
