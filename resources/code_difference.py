"""The difference between a changed checkout and its commit, limited to the files that affect what runs.

It goes to the durable tier and to MLflow, which more people can read than this folder. So it holds the changes of
tracked files and, of the untracked files, only the Python files that the running code imports
(`slipway.resources.code_imports`). Lines that look like secrets are left out. The first lines name each path of which
something was left out; `git apply` ignores them.
"""

import json
import re
import stat
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from slipway.resources import code_imports, secret_lines

GIT_SECONDS = 10.0
PLAIN = (
    "--binary",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
"""Options that make git's output independent of the user's configuration."""
NAMED = 100
"""How many of the untracked files that nothing imports are listed by name."""
HEAD = "# left out: "
_SECTION = re.compile(rb"(?m)^diff --git ")


class Difference(NamedTuple):
    """A difference as it is stored."""

    data: bytes
    left_out: tuple[str, ...]
    """One line for each omission: the path and the reason."""


def of_checkout(code: Path, named: Iterable[str], files: Iterable[Path]) -> Difference:
    """The difference of a checkout; its data is empty if the running code is as committed.

    `named` holds the modules, `files` the files and folders that recipes name. Raises OSError and SubprocessError.
    """
    others = [
        name for name in git(code, "ls-files", "--others", "--exclude-standard", "-z").decode().split("\0") if name
    ]
    imported = code_imports.imported(code, others, set(named), list(files))
    changed = git(code, "diff", "HEAD", *PLAIN)
    added = b"".join(_as_added(code, name) for name in others if name in imported)
    cleaned = without_secrets(changed + added)
    if not cleaned.data and not cleaned.left_out:
        return cleaned
    more = [name for name in others if name not in imported]
    unused = [_line(name, "git does not know it, and nothing that runs imports it") for name in more[:NAMED]]
    if len(more) > NAMED:
        unused.append(f"{len(more) - NAMED} more files that git does not know")
    return _with_head(cleaned.data, [*cleaned.left_out, *unused])


def without_secrets(difference: bytes) -> Difference:
    """A difference without the lines that look like secrets. Idempotent; it also cleans what older releases stored."""
    starts = [match.start() for match in _SECTION.finditer(difference)]
    head = difference[: starts[0]] if starts else difference
    sections = [head]
    left_out = list[str]()
    for begin, end in zip(starts, [*starts[1:], len(difference)][: len(starts)], strict=True):
        path = _path(difference[begin:end])
        section, reason = secret_lines.of_section(path, difference[begin:end])
        sections.append(section)
        if reason:
            left_out.append(_line(path, reason))
    return _with_head(b"".join(sections), left_out)


def git(code: Path, *arguments: str) -> bytes:
    """Git's standard output. Raises OSError and SubprocessError."""
    done = subprocess.run(["git", *arguments], cwd=code, capture_output=True, check=True, timeout=GIT_SECONDS)
    return done.stdout


def _with_head(data: bytes, left_out: Sequence[str]) -> Difference:
    lines = "".join(f"{HEAD}{line}\n" for line in left_out)
    return Difference(lines.encode(errors="surrogateescape") + data, tuple(left_out))


def _line(path: str, reason: str) -> str:
    """A path and the reason on one line, even if the path holds line breaks."""
    return f"{path if path.isprintable() else json.dumps(path)}: {reason}"


def _path(section: bytes) -> str:
    """The path of the file that a section of a difference describes."""
    first = section.partition(b"\n")[0].decode(errors="surrogateescape").removeprefix("diff --git ")
    return first[len(first) // 2 + 1 :].strip('"').removeprefix("b/")


def _as_added(code: Path, name: str) -> bytes:
    """An untracked file as a difference; empty if it is not a regular file."""
    if not stat.S_ISREG((code / name).lstat().st_mode):
        return b""
    command = ["git", "diff", "--no-index", *PLAIN, "--", "/dev/null", name]
    done = subprocess.run(command, cwd=code, capture_output=True, timeout=GIT_SECONDS, check=False)
    return done.stdout  # git exits with 1, since the two files differ
