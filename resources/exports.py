"""Exports: the exported models on the durable tier, and their removal.

    <durable>/serving/<model>/models/<checkpoint manifest>   for a server; named by the checkpoint's manifest hash
    <durable>/exports/<training>.<step>-<precision>          exported by a person in the UI
    beside either   <name>.damaged-<ns>   did not verify, and was set aside
                    .<name>.<random>      unfinished; a killed export leaves it behind
                    .aside-<name>         about to be removed

The modification time of an export's folder is the time of its last use. A reader touches the folder before it loads the
export. The retention renames the folder, so that readers no longer find it, checks its time and its references again,
and renames it back if either has changed. On one machine, a lock separates readers and the retention completely.
"""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from slipway.serving.records import SERVING, ServingRecords
from slipway.trainer.base import atomic, listing, lock, removal

EXPORTS = "exports"
"""The folder of the durable tier for exports that a person made."""
ASIDE = ".aside-"
DAMAGED = ".damaged-"
ExportKind = Literal["served", "asked", "damaged", "unfinished"]


@dataclass(frozen=True)
class Export:
    """One folder on the durable tier."""

    name: str
    """The folder, relative to the durable tier."""
    kind: ExportKind
    bytes: int
    model: str = ""
    """The registered model whose server uses it; empty for an export that a person made."""


def wanted_now(folder: Path) -> bool:
    """Mark an export as in use. Returns False if it does not exist and must be made. Raises OSError."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def set_damaged_aside(folder: Path) -> None:
    """Rename an export that does not verify, so that it can be made again. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        folder.rename(folder.with_name(f"{folder.name}{DAMAGED}{time.time_ns()}"))


def wanting(durable: Path, model: str) -> contextlib.AbstractContextManager[None]:
    """A shared lock, held from looking for an export of a model until its user is recorded."""
    return lock.shared(_folder(durable, model))


def collecting(durable: Path, model: str) -> contextlib.AbstractContextManager[None]:
    """An exclusive lock for removing exports of a model. Raises lock.LockHeld while `wanting` is held."""
    return lock.at_once(_folder(durable, model))


def models(durable: Path) -> list[str]:
    """The registered models that have exports, and "" if people have made exports. Raises OSError."""
    names = listing.folders_if_there(durable / SERVING)
    return [name for name in (*names, "") if _folder(durable, name).exists()]


def of_model(durable: Path, model: str) -> list[Export]:
    """The exports of a model, except those set aside for removal. Raises OSError."""
    folder = _folder(durable, model)
    names = [name for name in _entries(folder) if not name.startswith(ASIDE)]
    exports = [_export(durable, folder / name, model) for name in names]
    return [export for export in exports if export is not None]


def put_all_back(durable: Path, model: str) -> None:
    """Put back what a killed retention had set aside. The caller must hold `collecting`. Raises OSError."""
    folder = _folder(durable, model)
    for name in [name for name in _entries(folder) if name.startswith(ASIDE)]:
        put_back(durable, str((folder / name).relative_to(durable)))


def set_aside(durable: Path, export: Export) -> str:
    """Rename an export for removal; returns the new name relative to the durable tier, or "" if it is gone.

    Raises OSError, for example for a symbolic link: nothing is removed through one.
    """
    folder, _, name = export.name.rpartition("/")
    return f"{folder}/{ASIDE}{name}" if removal.rename_folder(durable, export.name, ASIDE + name) else ""


def put_back(durable: Path, name_aside: str) -> None:
    """Undo `set_aside`; if the export was made again meanwhile, remove the older one. Raises OSError."""
    folder = durable / name_aside
    if not atomic.show(folder, folder.with_name(folder.name.removeprefix(ASIDE))):
        removal.remove_folder(durable, name_aside)


def used(folder: Path) -> float:
    """When an export was last used or written, in seconds since the epoch. Raises OSError."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


def _entries(folder: Path) -> list[str]:
    """The names in a folder, including hidden ones. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _export(durable: Path, folder: Path, model: str) -> Export | None:
    """The export in a folder; None if it is not a folder or has been removed meanwhile. Raises OSError."""
    try:
        if folder.is_symlink() or not listing.is_folder(folder):
            return None
        size = sum(path.stat().st_size for path in folder.iterdir())
        return Export(str(folder.relative_to(durable)), _kind(folder.name, model), size, model)
    except FileNotFoundError:
        return None


def _kind(name: str, model: str) -> ExportKind:
    if name.startswith("."):
        return "unfinished"
    if DAMAGED in name:
        return "damaged"
    return "served" if model else "asked"


def _folder(durable: Path, model: str) -> Path:
    return ServingRecords(durable).exports(model) if model else durable / EXPORTS
