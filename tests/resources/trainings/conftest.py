"""A platform for each test, whose processes are marked and keep to one thread."""

from pathlib import Path

import pytest

from tests.conftest import Marked
from tests.resources.trainings.clock import Clock
from tests.resources.trainings.lab import Lab


@pytest.fixture
def lab(tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Lab(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()
