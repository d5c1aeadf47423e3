"""The difference of a changed checkout from its commit: what decides what runs, and nothing else that lies about.

It goes to the durable tier and to MLflow, which more people read than this folder. So it holds the changes of files
that git knows, and of all others the Python files that what runs imports (`slipway.resources.code_imports`). What looks
like a secret is in neither. The first lines name each path of which something was left out; `git apply` passes over
them.
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
"""What makes git's differences the same under all of its settings."""
NAMED = 100
"""So many of the files that nothing imports are named."""
HEAD = "# left out: "
_SECTION = re.compile(rb"(?m)^diff --git ")


class Difference(NamedTuple):
    """A difference as it is kept."""

    data: bytes
    left_out: tuple[str, ...]
    """What is not in it, a line each: the path, and why."""


def of_checkout(code: Path, named: Iterable[str], files: Iterable[Path]) -> Difference:
    """The difference of a checkout; without any data where what runs is as committed.

    `named` are modules that recipes name, `files` files and folders. Raises OSError and SubprocessError.
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
    """A difference without what looks like a secret: also one that an earlier release kept. Once is enough."""
    starts = [match.start() for match in _SECTION.finditer(difference)]
    sections = [difference[: starts[0]] if starts else difference]
    left_out = list[str]()
    for begin, end in zip(starts, [*starts[1:], len(difference)][: len(starts)], strict=True):
        path = _path(difference[begin:end])
        section, reason = secret_lines.of_section(path, difference[begin:end])
        sections.append(section)
        left_out += [_line(path, reason)] if reason else []
    return _with_head(b"".join(sections), left_out)


def git(code: Path, *arguments: str) -> bytes:
    """What git answers. Raises OSError and SubprocessError."""
    done = subprocess.run(["git", *arguments], cwd=code, capture_output=True, check=True, timeout=GIT_SECONDS)
    return done.stdout


def _with_head(data: bytes, left_out: Sequence[str]) -> Difference:
    lines = "".join(f"{HEAD}{line}\n" for line in left_out)
    return Difference(lines.encode(errors="surrogateescape") + data, tuple(left_out))


def _line(path: str, reason: str) -> str:
    """A path as one line, whatever its name is."""
    return f"{path if path.isprintable() else json.dumps(path)}: {reason}"


def _path(section: bytes) -> str:
    """The path of a file's part of a difference."""
    first = section.partition(b"\n")[0].decode(errors="surrogateescape").removeprefix("diff --git ")
    return first[len(first) // 2 + 1 :].strip('"').removeprefix("b/")


def _as_added(code: Path, name: str) -> bytes:
    """A file that git does not know, as a difference; empty for what is no regular file."""
    if not stat.S_ISREG((code / name).lstat().st_mode):
        return b""
    command = ["git", "diff", "--no-index", *PLAIN, "--", "/dev/null", name]
    done = subprocess.run(command, cwd=code, capture_output=True, timeout=GIT_SECONDS, check=False)
    return done.stdout  # with another exit code than 0, as the two files differ
