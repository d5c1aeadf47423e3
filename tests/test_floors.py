"""Imports go down only: a copy of the code in which one goes another way is refused."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_files import HOUSE, ROOT

pytestmark = pytest.mark.slow

PLANTED = {
    "Imports go down only": ("resources/tiers.py", "from slipway.assets import keys"),
    "The server stands on the trainer alone": ("serving/__init__.py", "import dagster"),
    "The trainer stands alone": ("trainer/base/digest.py", "import duckdb"),
    "The packages of the trainer": ("trainer/config/__init__.py", "from slipway.trainer import loop"),
    "No circle between packages, nor inside one": ("recipes/cleaning.py", "from slipway.recipes import dataset"),
}
"""For each contract a file, and an import in it that the contract forbids."""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The code of this checkout, and nothing of its data."""
    for name in (*HOUSE, "slipway"):
        shutil.copytree(
            ROOT / name, tmp_path / name, symlinks=True, ignore=lambda folder, names: ignored(Path(folder), names)
        )
    for name in ("definitions.py", ".importlinter"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def ignored(folder: Path, names: list[str]) -> set[str]:
    return {name for name in names if not (folder / name).is_dir() and not name.endswith(".py")} | {"__pycache__"}


def contracts(folder: Path) -> dict[str, str]:
    """KEPT or BROKEN, by the name of the contract."""
    lint = Path(sys.executable).with_name("lint-imports")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run([lint, "--no-logo"], cwd=folder, env=environment, capture_output=True, text=True)
    lines = [line.rpartition(" ") for line in done.stdout.splitlines()]
    return {name: verdict for name, _, verdict in lines if verdict in ("KEPT", "BROKEN")}


def test_the_contracts_hold_and_each_refuses_an_import_that_goes_another_way(copy: Path):
    assert contracts(copy) == dict.fromkeys(PLANTED, "KEPT")
    for contract, (name, statement) in PLANTED.items():
        file = copy / name
        text = file.read_text()
        file.write_text(f"{text}\n{statement}\n")
        assert contracts(copy)[contract] == "BROKEN"
        file.write_text(text)
