"""The house keeps its floors: imports go down only, the ground floor stands alone, every file says what it is."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LINES = 350
FLOORS = {
    "trainer": {"trainer"},
    "recipes": {"recipes", "trainer"},
    "resources": {"resources", "recipes", "trainer"},
    "assets": {"assets", "resources", "recipes", "trainer"},
    "sensors": {"sensors", "assets", "resources", "recipes", "trainer"},
    "definitions.py": {"sensors", "assets", "resources", "recipes", "trainer"},
    "deploy": {"deploy", "definitions", "sensors", "assets", "resources", "recipes", "trainer"},
}
"""Which of the house's packages each may import."""
HOUSE = {*(floor.removesuffix(".py") for floor in FLOORS), "tests", "benchmarks"}
GROUND = {"blake3", "numpy", "safetensors", "torch"}
"""What the trainer imports besides the standard library."""
ON_THE_WAY = {"aiohttp", "botocore", "cryptography", "fsspec", "s3fs", "starlette", "uvicorn"}
"""What it imports only where bytes come over a network, or are encrypted."""
MACHINE_PATH = re.compile(r"/(work|home|root|Users)/\w")


def tracked(*patterns: str) -> list[Path]:
    """The files of the repository by pattern, those that are not committed yet included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(path for name in listed if (path := ROOT / name).is_file())


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PYTHON = tracked("*.py")


def imports(path: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{name_of(path)}:{node.lineno}: a relative import"
            yield node.module.split(".")[0]


def files_of(floor: str) -> list[Path]:
    return [path for path in PYTHON if name_of(path).split("/")[0] == floor]


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_go_down_only(floor: str):
    upwards = {
        f"{name_of(path)} imports {package}"
        for path in files_of(floor)
        for package in imports(path)
        if package in HOUSE - FLOORS[floor]
    }
    assert files_of(floor) and upwards == set()


def test_the_trainer_stands_alone():
    foreign = {
        f"{name_of(path)} imports {package}"
        for path in files_of("trainer")
        for package in imports(path)
        if package not in {"trainer", *GROUND, *ON_THE_WAY, *sys.stdlib_module_names}
    }
    assert foreign == set()


@pytest.mark.parametrize("path", [path for path in PYTHON if path.read_text()], ids=name_of)
def test_every_file_says_what_it_is_and_is_short(path: Path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no module docstring"
    assert len(text.splitlines()) <= LINES


def test_no_file_knows_a_machine():
    own = Path(__file__).resolve()
    found = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in tracked("*.py", "*.yaml", "*.toml", "*.md", "Makefile")
        if path != own
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if MACHINE_PATH.search(line)
    ]
    assert found == []
