"""Exports: the exported models on the durable tier, and the one door through which they leave it.

    <durable>/serving/<model>/models/<checkpoint manifest>   made when a version is served or asked, named by its bytes
    <durable>/exports/<training>.<step>-<precision>          made when a person asked for it in the UI
    beside either   <name>.damaged-<ns>   set aside by whoever found that it does not verify
                    .<name>.<random>      not finished; a killed export leaves it
                    .aside-<name>         about to be removed

An export's folder has the time at which it was last wanted. Who is about to load one touches it first; the retention
sets a folder aside by one rename, which all take for its absence, looks at its time and its references again, and puts
it back where either has changed. On one machine a lock keeps the two apart altogether.
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
"""On the durable tier, the exports that a person asked for."""
ASIDE, DAMAGED = ".aside-", ".damaged-"
ExportKind = Literal["served", "asked", "damaged", "unfinished"]


@dataclass(frozen=True)
class Export:
    """One folder on the durable tier."""

    name: str
    """The folder, relative to the durable tier."""
    kind: ExportKind
    bytes: int
    model: str = ""
    """The registered model of whose server it is; empty for one that a person asked for."""


def wanted_now(folder: Path) -> bool:
    """Note that an export is about to be read. False where there is none: make it. Raises OSError."""
    try:
        os.utime(folder)
    except FileNotFoundError:
        return False
    return True


def set_damaged_aside(folder: Path) -> None:
    """Give an export that does not verify another name, so that it can be made anew. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        folder.rename(folder.with_name(f"{folder.name}{DAMAGED}{time.time_ns()}"))


def wanting(durable: Path, model: str) -> contextlib.AbstractContextManager[None]:
    """Held from looking for an export of a model until it is on record who wants it."""
    return lock.shared(_folder(durable, model))


def collecting(durable: Path, model: str) -> contextlib.AbstractContextManager[None]:
    """Held while exports of a model are removed. Raises lock.LockHeld while one is being wanted."""
    return lock.at_once(_folder(durable, model))


def models(durable: Path) -> list[str]:
    """The registered models that have exports, and "" for those that a person asked for. Raises OSError."""
    names = listing.folders_if_there(durable / SERVING)
    return [name for name in (*names, "") if _folder(durable, name).exists()]


def of_model(durable: Path, model: str) -> list[Export]:
    """The exports of a model, but for what is set aside. Raises OSError."""
    folder = _folder(durable, model)
    names = [name for name in _entries(folder) if not name.startswith(ASIDE)]
    return [export for name in names if (export := _export(durable, folder / name, model)) is not None]


def put_all_back(durable: Path, model: str) -> None:
    """Undo what a killed retention had set aside; only who is `collecting` may. Raises OSError."""
    folder = _folder(durable, model)
    for name in [name for name in _entries(folder) if name.startswith(ASIDE)]:
        put_back(durable, str((folder / name).relative_to(durable)))


def set_aside(durable: Path, export: Export) -> str:
    """Rename an export out of its place; the new name, relative to the durable tier; "" where it is gone.

    Raises OSError, for example for a link: nothing is removed through one.
    """
    folder, _, name = export.name.rpartition("/")
    return f"{folder}/{ASIDE}{name}" if removal.rename_folder(durable, export.name, ASIDE + name) else ""


def put_back(durable: Path, name_aside: str) -> None:
    """Undo `set_aside`; where the export was made anew meanwhile, the older one goes. Raises OSError."""
    folder = durable / name_aside
    if not atomic.show(folder, folder.with_name(folder.name.removeprefix(ASIDE))):
        removal.remove_folder(durable, name_aside)


def used(folder: Path) -> float:
    """When an export was last wanted, or anything in it written, in seconds since the epoch. Raises OSError."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


def _entries(folder: Path) -> list[str]:
    """The names in a folder, hidden ones too. Raises OSError."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _export(durable: Path, folder: Path, model: str) -> Export | None:
    """What a folder is; None for no folder, and for one that has gone meanwhile. Raises OSError."""
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
