"""Pure tests: ``pytest -p tests.pure`` runs only these, and makes sure that they are pure.

A file of pure tests says ``pytestmark = pytest.mark.pure``; all others are not even imported. A pure test imports
neither Dagster nor torch nor MLflow, each of which takes seconds, and starts no process. An attempt is an error. A test
that has to start a process in such a file is marked ``process``, and left out here.
"""

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

MARK = "pytest.mark.pure"
TESTS = Path(__file__).parent
HEAVY = {"dagster", "dagster_k8s", "mlflow", "torch"}
STARTS_A_PROCESS = {"subprocess.Popen", "os.fork", "os.posix_spawn"}


_collecting: list[Path] = []
"""Filled when this process begins to collect tests: the one that only starts pytest-xdist's workers never does."""


class _Guard(importlib.abc.MetaPathFinder):
    """Refuses to import what takes seconds."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in HEAVY:
            raise AssertionError(f"a pure test imports {name}: remove its mark, or the import")
        return None


def _refuse_processes(event: str, arguments: tuple[object, ...]) -> None:
    if event in STARTS_A_PROCESS and _collecting:
        raise AssertionError(f"a pure test starts a process ({event}): remove its mark, or the process")


sys.meta_path.insert(0, _Guard())
sys.addaudithook(_refuse_processes)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore each file of tests that does not say that it is pure, and each folder without one, unimported."""
    _collecting.append(collection_path)
    if TESTS not in collection_path.parents:
        return None
    if collection_path.is_dir():
        return None if any(_is_pure(file) for file in collection_path.rglob("test_*.py")) else True
    return True if collection_path.name.startswith("test_") and not _is_pure(collection_path) else None


def _is_pure(file: Path) -> bool:
    return MARK in file.read_text()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that start a process, or take long."""
    left_out = [item for item in items if any(any(item.iter_markers(name)) for name in ("process", "slow", "nightly"))]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
