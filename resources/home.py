"""The home of the embedded instance: one folder (SLIPWAY_HOME) that holds all of its state.

dagster/    Dagster's storage and logs (DAGSTER_HOME)
mlflow.db   tracking and the model registry
durable/    the durable tier: snapshots, shards, trainings, checkpoints
nodes/      the embedded nodes, each with its nvme/ folder
jobs/       the job objects of the local launcher
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.recipes import folder
from slipway.trainer.base.paths import CODE

DEFAULT = CODE / ".slipway"
NODES = ("node-0", "node-1")
DAGSTER_PAGE = "SLIPWAY_DAGSTER_PAGE"
"""The variable with the address of the UI; an instance sets it for its own processes."""

MLFLOW_PAGE = "SLIPWAY_MLFLOW_PAGE"
"""The variable with the address of MLflow; an instance sets it for its own processes."""


@dataclass(frozen=True)
class Home:
    root: Path
    backup: str = ""
    """A folder or s3://bucket/prefix for copies of checkpoints and of the metadata; empty for none."""
    openlineage: str = ""
    """A URL or a file for OpenLineage events; empty for none."""
    dagster_page: str = ""
    """Where people open the UI, for links in MLflow; empty for none."""
    mlflow_page: str = ""
    """Where people open MLflow, for links in the UI; empty for none."""

    @staticmethod
    def of(environ: Mapping[str, str] = os.environ) -> "Home":
        """The folder that SLIPWAY_HOME names, else `.slipway` in one's own recipes (`slipway init`) or beside the code.

        SLIPWAY_BACKUP is its backup, SLIPWAY_OPENLINEAGE the target of its OpenLineage events, SLIPWAY_DAGSTER_PAGE and
        SLIPWAY_MLFLOW_PAGE are where people open the two.
        """
        recipes = folder.selected(environ)
        default = recipes / ".slipway" if folder.is_own(recipes) else DEFAULT
        root = Path(environ.get("SLIPWAY_HOME") or default).expanduser().absolute()
        backup = environ.get("SLIPWAY_BACKUP", "")
        openlineage = environ.get("SLIPWAY_OPENLINEAGE", "")
        return Home(root, backup, openlineage, environ.get(DAGSTER_PAGE, ""), environ.get(MLFLOW_PAGE, ""))

    @property
    def dagster(self) -> Path:
        return self.root / "dagster"

    @property
    def durable(self) -> Path:
        return self.root / "durable"

    @property
    def nodes(self) -> Path:
        return self.root / "nodes"

    @property
    def nvme(self) -> str:
        """The NVMe folder of a node, {node} standing for its name."""
        return str(self.nodes / "{node}" / "nvme")

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.root / 'mlflow.db'}"
