"""The folder of recipes: the one that SLIPWAY_RECIPES names, the user's own, or the one beside the code.

A user's folder has the file `slipway.yaml` at its top, which `slipway init` writes. Commands in that folder or below it
use its recipes, and its instance keeps its state in the folder's `.slipway`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "SLIPWAY_RECIPES"
MARK = "slipway.yaml"
"""The file that marks a user's folder."""
BESIDE_THE_CODE = Path(__file__).parent.resolve()


def selected(environ: Mapping[str, str] = os.environ, start: Path | None = None) -> Path:
    """The absolute path of the recipes for a command in `start`, by default the working folder."""
    named = environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    return _own(start or Path.cwd()) or BESIDE_THE_CODE


def is_own(folder: Path) -> bool:
    """Whether `slipway init` made this folder."""
    return (folder / MARK).is_file()


def _own(start: Path) -> Path | None:
    """The nearest user's folder at `start` or above it."""
    return next((folder for folder in (start, *start.parents) if is_own(folder)), None)
