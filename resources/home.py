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
    """A folder or s3://bucket/prefix for copies of checkpoints and metadata; empty for no backup."""
    openlineage: str = ""
    """A URL or a file that receives OpenLineage events; empty for none."""
    dagster_page: str = ""
    """The address of the UI, for links in MLflow; empty for no links."""
    mlflow_page: str = ""
    """The address of MLflow, for links in the UI; empty for no links."""

    @staticmethod
    def of(environ: Mapping[str, str] = os.environ) -> "Home":
        """The home that SLIPWAY_HOME names, else `.slipway` in the user's recipes (`slipway init`) or beside the code.

        SLIPWAY_BACKUP sets the backup, SLIPWAY_OPENLINEAGE the target of OpenLineage events, SLIPWAY_DAGSTER_PAGE and
        SLIPWAY_MLFLOW_PAGE the addresses of the UI and of MLflow.
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
        """The path of a node's NVMe folder, with {node} in place of the node's name."""
        return str(self.nodes / "{node}" / "nvme")

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    @property
    def tracking_uri(self) -> str:
        return f"sqlite:///{self.root / 'mlflow.db'}"
