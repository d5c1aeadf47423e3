"""Code: the revision that runs here, and the difference of a changed checkout, kept under the revision's name.

A revision is git's, followed by "+" and 12 digits of the difference's SHA-256 where files were changed or added since.
Two changed checkouts thus have two revisions, and what a training ran can be made again from the durable tier alone:

    <durable>/code/<revision>.diff      what `git apply` takes: changed and added files
"""

import os
import subprocess
from pathlib import Path

from resources.home import CODE
from trainer.base import atomic, digest
from trainer.node.environment import REVISION

GIT_SECONDS = 10.0
FOLDER = "code"
MOST_BYTES = 16 << 20
"""A larger difference is not kept: it is data, no code."""


def revision(code: Path = CODE) -> str:
    """The revision of a checkout, or the one that an image names; empty where neither is known."""
    if given := os.environ.get(REVISION, ""):
        return given
    try:
        known = _git(code, "describe", "--always", "--abbrev=40", "--exclude=*").decode().strip()
        changed = difference(code)
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{known}+{digest.sha256(changed)[:12]}" if changed else known


def difference(code: Path = CODE) -> bytes:
    """What `git apply` makes this checkout of its revision with; empty for one that is as committed.

    Files that git ignores are not in it. Raises OSError and SubprocessError.
    """
    added = _git(code, "ls-files", "--others", "--exclude-standard", "-z").decode().split("\0")
    return _git(code, "diff", "HEAD", "--binary") + b"".join(_as_added(code, name) for name in added if name)


def keep_difference(durable: Path, running: str, code: Path = CODE) -> None:
    """Keep the difference of `running`, the revision of this process, if the checkout is still what it was then.

    Raises OSError for a durable tier that cannot be written.
    """
    if not is_changed(running) or difference_path(durable, running).exists():
        return
    try:
        changed = difference(code)
    except (OSError, subprocess.SubprocessError):
        return
    if running.endswith(f"+{digest.sha256(changed)[:12]}") and len(changed) <= MOST_BYTES:
        atomic.create_only(difference_path(durable, running), changed)


def is_changed(revision: str) -> bool:
    """Whether files were changed since the commit that a revision names."""
    return "+" in revision


def difference_path(durable: Path, revision: str) -> Path:
    return durable / FOLDER / f"{revision}.diff"


def _as_added(code: Path, name: str) -> bytes:
    """A file that git does not know, as a difference."""
    command = ["git", "diff", "--no-index", "--binary", "--", "/dev/null", name]
    done = subprocess.run(command, cwd=code, capture_output=True, timeout=GIT_SECONDS, check=False)
    return done.stdout  # with another exit code than 0, as the two files differ


def _git(code: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", *arguments], cwd=code, capture_output=True, check=True, timeout=GIT_SECONDS)
    return done.stdout
