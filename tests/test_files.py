"""Every file says what it is, and knows no machine; no two public classes share a name.

Who may import whom stands in `.importlinter`, which `make lint` checks.
"""

import ast
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[1]
HOUSE = ("assets", "cli", "deploy", "operations", "recipes", "resources", "sensors", "serving", "trainer")
TEXTS = {".py", ".yaml", ".toml", ".md", ".txt", ".ini", ".tpl"}
OUTSIDE = re.compile(rf"(?<![\w./\-])({'|'.join(HOUSE)})\.([a-z_]\w*)|-m ({'|'.join(HOUSE)}|definitions)\b")
"""A module that is named as if it were installed by itself."""
MACHINE_PATH = re.compile(r"/(work|home|root|Users)/\w")


def texts() -> Iterator[Path]:
    """The repository's own texts: what lies in hidden folders, or is built, is not among them."""
    for top in sorted(ROOT.iterdir()):
        inside = top.rglob("*") if top.is_dir() and not top.name.startswith(".") and top.name != "build" else [top]
        yield from (
            path for path in sorted(inside) if path.suffix in TEXTS and path.is_file() and not path.is_symlink()
        )


@functools.cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in texts() if path.suffix == ".py"}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_file_says_what_it_is():
    silent = [name_of(path) for path, tree in trees().items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def test_a_whole_file_is_read_by_one_function_which_no_pipe_holds_up():
    reads = [
        f"{name_of(path)}:{node.lineno}"
        for path, tree in trees().items()
        if path.relative_to(ROOT).parts[0] in HOUSE
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == "read_bytes"
    ]
    assert reads == [], "expected slipway.trainer.base.regular_file.read"


def test_a_module_that_a_text_names_is_in_the_one_package():
    """Ruff sees imports. Names in texts start processes, are compared with command lines, and are replaced in tests."""
    names_outside = [f"{name_of(path)}: {name}" for path, tree in trees().items() for name in named_outside(tree)]
    assert names_outside == [], "expected slipway. before it"


def named_outside(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that a file's texts, and its words after -m, name without the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            matches = OUTSIDE.finditer(node.value)
            yield from (match.group() for match in matches if match[3] or is_module(ROOT / match[1] / match[2]))
        elif isinstance(node, ast.List | ast.Tuple):
            arguments = [element.value if isinstance(element, ast.Constant) else None for element in node.elts]
            yield from (f"-m {name}" for flag, name in itertools.pairwise(arguments) if flag == "-m" and name in HOUSE)


def is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or any(path.glob("*.py"))


def test_no_file_knows_a_machine():
    lines = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in texts()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert lines == []


def test_a_public_class_has_a_name_of_its_own():
    files_by_class = defaultdict(list)
    for path, tree in trees().items():
        if name_of(path).split("/")[0] in HOUSE and "examples" not in path.parts:
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    files_by_class[node.name].append(name_of(path))
    assert {name: where for name, where in files_by_class.items() if len(where) > 1} == {}
