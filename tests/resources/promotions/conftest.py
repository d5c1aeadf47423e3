"""A home with a registry for each test."""

import shutil
from pathlib import Path

import pytest

from slipway.resources.home import Home
from slipway.resources.mlflow.registry import Registry
from slipway.resources.mlflow.tracking import Tracking


@pytest.fixture
def home(database: Path, tmp_path: Path) -> Home:
    """A home in which MLflow knows nothing yet."""
    home_folder = Home(tmp_path / "home")
    home_folder.root.mkdir()
    shutil.copyfile(database, home_folder.root / "mlflow.db")
    return home_folder


@pytest.fixture
def registry(home: Home) -> Registry:
    return Registry(Tracking(uri=home.tracking_uri), home.durable)
