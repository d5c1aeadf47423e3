"""Listings: the names in a folder, or an error. A folder that cannot be listed is not an empty one.

`pathlib.Path.glob` returns nothing for a folder that is gone, is a file, may not be read, or is on a tier that is away.
Code whose decisions depend on the absence of a file uses these functions.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger("slipway.listing")
_STRAY: set[tuple[Path, str]] = set()
"""The stray names that this process has logged."""


def names(folder: Path, suffix: str = "") -> list[str]:
    """The names in a folder that end with `suffix`, without it, sorted; hidden ones are left out. Raises OSError."""
    return sorted(
        name.removesuffix(suffix) for name in _all(folder) if not name.startswith(".") and name.endswith(suffix)
    )


def names_if_there(folder: Path, suffix: str = "") -> list[str]:
    """As `names`; empty if the folder does not exist. Raises OSError for every other error."""
    try:
        return names(folder, suffix)
    except FileNotFoundError:
        return []


def folders_if_there(folder: Path) -> list[str]:
    """The names of the folders in a folder, sorted; empty if it does not exist. Raises OSError for other errors.

    Any other file there is a stray, which is logged once.
    """
    return fitting(folder, names_if_there(folder), lambda name: is_folder(folder / name))


def files_if_there(folder: Path, suffix: str) -> list[str]:
    """The names of the files in a folder that end with `suffix`, as `names_if_there`.

    A folder or a pipe of such a name is a stray, which is logged once.
    """
    return fitting(folder, names_if_there(folder, suffix), lambda name: is_file(folder / f"{name}{suffix}"))


def fitting(folder: Path, names: Iterable[str], fits: Callable[[str], bool]) -> list[str]:
    """The expected names of a folder. A stray name is logged once and skipped."""
    fitting_names = []
    for name in names:
        if fits(name):
            fitting_names.append(name)
        elif (folder, name) not in _STRAY:
            _STRAY.add((folder, name))
            log.warning("%s: found the stray name %r, which is passed over: remove it", folder, name)
    return fitting_names


def is_folder(path: Path) -> bool:
    """Unlike `Path.is_dir`, raises OSError if that cannot be read."""
    return stat.S_ISDIR(path.stat().st_mode)


def is_file(path: Path) -> bool:
    """Unlike `Path.is_file`, raises OSError if that cannot be read; False for a file that is gone."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


def is_absent(path: Path) -> bool:
    """Whether a file is proven missing: its folder can be listed and has no plain file of this name.

    A missing folder proves nothing, unless the folder above it can be listed and does not have it: the tier may be
    away. Raises OSError if the folder cannot be listed.
    """
    folder = path.parent
    try:
        there = path.name in _all(folder)
    except (FileNotFoundError, NotADirectoryError):
        return folder.name not in _all(folder.parent) or not is_folder(folder)
    return not there or not stat.S_ISREG(path.stat().st_mode)


def _all(folder: Path) -> set[str]:
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries}
