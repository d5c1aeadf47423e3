"""Publication: the folder of a checkpoint or an export becomes visible by one rename, when every file is on disk.

A hidden folder beside the final one collects the files. The manifest is written last; records identify the checkpoint
by its SHA-256 (`slipway.trainer.checkpoint.disk.verification`).
"""

import contextlib
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from slipway.trainer.base import atomic, digest, removal, verify
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile, CheckpointManifest
from slipway.trainer.record.fence import Token

TOKEN = re.compile(r"(?<!\d)\d{6}\.\d{4}(?!\d)")
"""A token in the name of a hidden folder; the last one is that of the process that writes it."""

Blocks = Iterable[bytes | memoryview]
"""The content of a file, generated while it is written."""


def write(folder: Path, layout: str, files: Mapping[str, bytes | Blocks]) -> str:
    """Write files to the new folder `folder` in one visible step; returns the SHA-256 of the manifest.

    `layout` names the kind of content ("huggingface.llama/1"). Raises OSError, for example for a full disk. This and an
    error of the blocks leave no folder.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    hidden = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        described = {name: _write_file(hidden / name, content) for name, content in files.items()}
        hidden.chmod(0o755)
        return publish(hidden, folder, CheckpointManifest(layout, described))
    except Exception:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


def _write_file(path: Path, content: bytes | Blocks) -> CheckpointFile:
    hashed = verify.RunningDigest()
    blocks: Blocks = [content] if isinstance(content, bytes) else content
    atomic.write(path, hashed.passing(blocks))
    return CheckpointFile(hashed.bytes, hashed.blake3)


def publish(hidden: Path, folder: Path, manifest: CheckpointManifest) -> str:
    """Rename a hidden folder, whose files are on disk, to `folder`; returns the SHA-256 of the manifest.

    Raises OSError, also if a file of the manifest is missing.
    """
    data = manifest.encode()
    require_whole(hidden, manifest.files)
    atomic.write(hidden / MANIFEST, [data])
    if not atomic.show(hidden, folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    return digest.sha256(data)


def show_share(hidden: Path, folder: Path, manifest: bytes, files: Mapping[str, CheckpointFile]) -> None:
    """Rename a hidden folder with a node's share of a checkpoint, the `files` of its manifest, to `folder`.

    Raises OSError, also if one of `files` is missing.
    """
    require_whole(hidden, files)
    atomic.write(hidden / MANIFEST, [manifest])
    if not atomic.show(hidden, folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))


def missing(folder: Path, files: Mapping[str, CheckpointFile]) -> str:
    """Why `folder` is not whole: a file is missing or has another size. Empty if it is whole.

    Raises OSError if a file's size cannot be read.
    """
    for name, expected in files.items():
        try:
            size = (folder / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return f"{name} is missing"
        if size != expected.bytes:
            return f"{name}: found {size} bytes, expected {expected.bytes}"
    return ""


def require_whole(folder: Path, files: Mapping[str, CheckpointFile]) -> None:
    """Raises OSError unless every one of `files` is in `folder` with its size."""
    fault = missing(folder, files)
    if fault:
        raise OSError(errno.ENOENT, f"not whole: {fault}", str(folder))


def remove_unpublished(parent: Path, token: Token) -> None:
    """Remove the hidden folders of older tokens in `parent`; a writer that still uses one fails.

    Folders of this token or a newer one stay, and so do folders without a token in the name. The caller has checked
    that `token` is the newest claim's. Raises OSError for a folder that cannot be listed.
    """
    try:
        leftovers = [path for path in parent.iterdir() if path.name.startswith(".")]
    except FileNotFoundError:
        return
    for path in leftovers:
        tokens = TOKEN.findall(path.name)
        if tokens and Token.parse(tokens[-1]) < token:
            with contextlib.suppress(OSError):  # the next start tries again
                removal.remove_folder(parent, path.name)
