"""Code imports: which untracked files of a checkout belong to the running code, found by static analysis.

An untracked Python file belongs to it if a tracked file, a file that a recipe names or another such file imports it. A
dotted name in quotes counts as an import too, since tables also name modules.
"""

import ast
import re
import subprocess
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from slipway.trainer.base import regular_file

BESIDE = ("tests", "benchmarks", "docs")
"""Top-level folders whose imports do not matter, since a training does not run them."""
GIT_SECONDS = 10.0
_DOTTED = re.compile(r"\w+(?:\.\w+)+")
MOST_FILES = 1000
"""How many files of a folder that a recipe names are read at most."""


def imported(code: Path, others: Sequence[str], named: Collection[str], files: Sequence[Path]) -> set[str]:
    """The files among `others` (paths in the checkout) that belong to the running code.

    `named` holds the modules, `files` the files and folders that recipes name. Raises OSError and SubprocessError.
    """
    python = [name for name in others if name.endswith(".py") and (code / name).is_file()]
    if not python:
        return set()
    modules = {module: name for name in python for module in _modules(name)}
    used = {name for module, name in modules.items() if module in named}
    known = _named_by_git(code, {PurePosixPath(name).stem for name in modules.values()} | _folders(python))
    ahead = [code / name for name in known] + [path for file in files for path in _python(file)]
    inside = {code / name: name for name in python}
    used |= {inside[path] for path in ahead if path in inside}
    ahead += [code / name for name in used]
    done = set[Path]()
    while ahead:
        path = ahead.pop()
        if path in done:
            continue
        done.add(path)
        for name in _imports(path, code, modules) - used:
            used.add(name)
            ahead.append(code / name)
    return used


def _modules(name: str) -> set[str]:
    """The dotted names of a file: from the top of the checkout, and below `slipway`, whose folders are links to those
    there."""
    path = PurePosixPath(name)
    parts = path.parent.parts if path.name == "__init__.py" else path.with_suffix("").parts
    return {".".join(parts), ".".join(("slipway", *parts))} if parts else set()


def _folders(python: Sequence[str]) -> set[str]:
    return {PurePosixPath(name).parent.name for name in python if name.endswith("/__init__.py")} - {""}


def _named_by_git(code: Path, names_sought: Collection[str]) -> list[str]:
    """The tracked Python files that contain one of these words."""
    patterns = [part for word in sorted(names_sought) for part in ("-e", word)]
    command = ["git", "grep", "-l", "-z", "-w", "-F", *patterns, "--", "*.py"]
    done = subprocess.run(command, cwd=code, capture_output=True, timeout=GIT_SECONDS, check=False)
    if done.returncode not in (0, 1):  # 1: none
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    names = [name for name in done.stdout.decode().split("\0") if name]
    return [name for name in names if PurePosixPath(name).parts[0] not in BESIDE]


def _python(path: Path) -> list[Path]:
    """The Python files at a path."""
    if path.is_dir():
        return sorted(file for file in path.rglob("*.py") if file.is_file())[:MOST_FILES]
    return [path] if path.suffix == ".py" and path.is_file() else []


def _imports(path: Path, code: Path, modules: dict[str, str]) -> set[str]:
    """The files of `modules` that a file imports; none if it is not valid Python."""
    try:
        tree = ast.parse(regular_file.read(path))
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    package = path.parent.relative_to(code).parts if path.is_relative_to(code) else ()
    names = {name for node in ast.walk(tree) for name in _named(node, package)}
    beside = {".".join((*package, name)) for name in names} if package else set[str]()  # a script's neighbours
    all_parts = [name.split(".") for name in names | beside]
    prefixes = {".".join(parts[:count]) for parts in all_parts for count in range(1, len(parts) + 1)}
    return {modules[name] for name in prefixes if name in modules}


def _named(node: ast.AST, package: tuple[str, ...]) -> Iterator[str]:
    """The modules that a syntax node imports or may name."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else ()
        module = ".".join((*above, *filter(None, [node.module])))
        yield from (f"{module}.{alias.name}".lstrip(".") for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        yield node.value
