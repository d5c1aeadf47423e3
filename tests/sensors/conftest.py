"""A platform for each test, copied from one that is made once: snapshot, finished training, Dagster's databases.

Fixtures import Dagster when they are used: pure tests of other folders have these fixtures too (tests/pure.py).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import PATIENCE_SECONDS, Marked

if TYPE_CHECKING:
    from tests.sensors.platform import Platform

UNCAPTURED = {
    "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
}
"""Dagster captures a step's output through `tail` processes that may outlive it; here it goes to pytest."""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import dagster as dg

    from tests.sensors.platform import make_home

    root = tmp_path_factory.getbasetemp() / "platform"
    if root.is_dir():  # made for another folder's tests
        return root
    (root / "dagster").mkdir(parents=True)
    with (
        pytest.MonkeyPatch.context() as environment,
        dg.instance_for_test(UNCAPTURED, temp_dir=str(root / "dagster")) as instance,
    ):
        environment.setenv("OMP_NUM_THREADS", "1")
        make_home(root, instance)
    return root


@pytest.fixture
def tracked(platform: "Platform", database: Path) -> "Platform":
    """A platform with MLflow's database in its home."""
    shutil.copyfile(database, platform.home.root / "mlflow.db")
    return platform


@pytest.fixture
def platform(template: Path, tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch) -> "Iterator[Platform]":
    """A platform whose ticks have the time that they need: on a busy machine they would leave a part to the next."""
    import dagster as dg

    from slipway.resources.mlflow import tracking
    from slipway.sensors.support import tick
    from tests.sensors.platform import Platform

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(tick, "TICK_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(tracking, "DELIVERY_SECONDS", PATIENCE_SECONDS)
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    with dg.instance_for_test(UNCAPTURED, temp_dir=str(tmp_path / "dagster")) as instance:
        yield Platform(tmp_path, instance)
