"""Code: the revision that runs here, and the difference of a changed checkout, kept under the revision's name.

A revision is git's, followed by "+" and 12 digits of the difference's SHA-256 where files were changed or added since.
Two changed checkouts thus have two revisions, and what a training ran can be made again from the durable tier alone:

    <durable>/code/<revision>.diff      what `git apply` takes (`slipway.resources.code_difference`)
"""

import contextlib
import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import yaml

from slipway.recipes import folder, texts
from slipway.resources import code_difference
from slipway.resources.code_difference import Difference
from slipway.trainer.base import atomic, digest
from slipway.trainer.base.paths import CODE
from slipway.trainer.node.runtime_info import REVISION

log = logging.getLogger("slipway.code")
BUILT_IN = "slipway.trainer.models."
"""What a built-in kind of model is short for."""
LONGEST_NAME = 500
FOLDER = "code"
SUFFIX = ".diff"
MOST_BYTES = 16 << 20
"""A larger difference is not kept: it is data, no code."""


def revision(code: Path = CODE) -> str:
    """The revision of a checkout, or the one that an image names; empty where neither is known."""
    if of_image := os.environ.get(REVISION, ""):
        return of_image
    try:
        known = code_difference.git(code, "describe", "--always", "--abbrev=40", "--exclude=*").decode().strip()
        changed = difference(code).data
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{known}+{digest.sha256(changed)[:12]}" if changed else known


def difference(code: Path = CODE, recipes: Path | None = None) -> Difference:
    """What `git apply` makes this checkout of its revision with; empty for one whose code is as committed.

    `recipes` is the folder of the recipes that name code, by default the selected one. Raises OSError and
    SubprocessError.
    """
    modules, files = _named_by(recipes or folder.selected())
    return code_difference.of_checkout(code, modules, files)


def keep_difference(durable: Path, running: str, code: Path = CODE) -> None:
    """Keep the difference of `running`, the revision of this process, if the checkout is still what it was then.

    Its owner alone may read it. Raises OSError for a durable tier that cannot be written.
    """
    if not is_changed(running) or difference_path(durable, running).exists():
        return
    try:
        changed = difference(code)
    except (OSError, subprocess.SubprocessError):
        return
    if running.endswith(f"+{digest.sha256(changed.data)[:12]}") and len(changed.data) <= MOST_BYTES:
        atomic.create_only(difference_path(durable, running), changed.data, mode=0o600)
        for line in changed.left_out:
            log.warning("%s: not in the difference of the code: %s", running, line)


def is_changed(revision: str) -> bool:
    """Whether files were changed since the commit that a revision names."""
    return "+" in revision


def difference_path(durable: Path, revision: str) -> Path:
    return durable / FOLDER / f"{revision}{SUFFIX}"


def _named_by(recipes: Path) -> tuple[set[str], set[Path]]:
    """The modules that recipes may name, and the files and folders, as texts anywhere in them."""
    modules = set[str]()
    files = set[Path]()
    for name, text in texts.read(recipes).items():
        with contextlib.suppress(yaml.YAMLError, RecursionError):
            for word in _texts(yaml.safe_load(text) if isinstance(text, str) else None):
                modules |= {f"{above}{word}{below}" for above in ("", BUILT_IN) for below in ("", ".network")}
                with contextlib.suppress(OSError, ValueError):
                    path = (recipes / name).parent / word
                    files |= {path.resolve()} if word not in (".", "..") and path.exists() else set()
    return modules, files


def _texts(value: object) -> Iterator[str]:
    """The texts in a document of YAML that may be a path or the name of a module."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and "\n" not in value:
        yield value
    elif isinstance(value, dict):
        yield from (word for item in value.values() for word in _texts(item))
    elif isinstance(value, list):
        yield from (word for item in value for word in _texts(item))
