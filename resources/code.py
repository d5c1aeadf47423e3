"""Code: the revision that runs in this process, and the uncommitted changes of a checkout, stored by revision.

A revision is git's commit, followed by "+" and 12 digits of the difference's SHA-256 if files differ from that commit.
So two changed checkouts have two revisions, and the code of a training can be rebuilt from the durable tier alone:

    <durable>/code/<revision>.diff      input of `git apply` (`slipway.resources.code_difference`)
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
"""The package in which recipes' short names of built-in models lie."""
LONGEST_NAME = 500
FOLDER = "code"
SUFFIX = ".diff"
MOST_BYTES = 16 << 20
"""A larger difference is not stored: it holds data rather than code."""


def revision(code: Path = CODE) -> str:
    """The revision that the container image names, else that of the checkout; "" if neither is known."""
    image_revision = os.environ.get(REVISION, "")
    if image_revision:
        return image_revision
    try:
        known = code_difference.git(code, "describe", "--always", "--abbrev=40", "--exclude=*").decode().strip()
        changed = difference(code).data
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{known}+{digest.sha256(changed)[:12]}" if changed else known


def difference(code: Path = CODE, recipes: Path | None = None) -> Difference:
    """The difference that turns the commit into this checkout; empty if the code is as committed.

    `recipes` is the folder of the recipes that name code, by default the selected one. Raises OSError and
    SubprocessError.
    """
    modules, files = _named_by(recipes or folder.selected())
    return code_difference.of_checkout(code, modules, files)


def keep_difference(durable: Path, running: str, code: Path = CODE) -> None:
    """Store the difference of `running`, the revision of this process, unless the checkout has changed since.

    Only the file's owner may read it. Raises OSError if the durable tier cannot be written.
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
    """Whether a revision names a checkout with uncommitted changes."""
    return "+" in revision


def difference_path(durable: Path, revision: str) -> Path:
    return durable / FOLDER / f"{revision}{SUFFIX}"


def _named_by(recipes: Path) -> tuple[set[str], set[Path]]:
    """The modules, and the files and folders, that any text in a recipe may name."""
    modules = set[str]()
    files = set[Path]()
    for name, text in texts.read(recipes).items():
        with contextlib.suppress(yaml.YAMLError, RecursionError):
            for word in _texts(yaml.safe_load(text) if isinstance(text, str) else None):
                modules |= {f"{above}{word}{below}" for above in ("", BUILT_IN) for below in ("", ".network")}
                with contextlib.suppress(OSError, ValueError):
                    path = (recipes / name).parent / word
                    if word not in (".", "..") and path.exists():
                        files.add(path.resolve())
    return modules, files


def _texts(value: object) -> Iterator[str]:
    """The texts in a document of YAML that may be a path or the name of a module."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and "\n" not in value:
        yield value
    elif isinstance(value, dict):
        yield from (word for item in value.values() for word in _texts(item))
    elif isinstance(value, list):
        yield from (word for item in value for word in _texts(item))
