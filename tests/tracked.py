"""MLflow's database for tests, made once in a session: making one takes many seconds."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh database of MLflow's, to be copied."""
    from slipway.resources.mlflow.tracking import Tracking

    path = tmp_path_factory.getbasetemp() / "mlflow.db"
    if not path.exists():
        Tracking(uri=f"sqlite:///{path}").client().search_experiments()
    return path
