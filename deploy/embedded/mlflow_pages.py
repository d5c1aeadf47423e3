"""MLflow's pages next to an instance: `python -m slipway.deploy.embedded.mlflow_pages DATABASE PORT` serves a home's
database.

No other process depends on it, and the instance goes on if it ends. It is not started if a token protects Dagster's UI,
since MLflow checks no token, or if SLIPWAY_MLFLOW_PAGE names another server.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from slipway.resources import access
from slipway.resources.home import MLFLOW_PAGE
from slipway.resources.mlflow import database

PORT = "SLIPWAY_MLFLOW_PORT"
"""The variable with the port of the pages, or `off`."""
OFF = "off"
HOST = "127.0.0.1"


def port(after: int, is_free: Callable[[int], bool], environ: Mapping[str, str] = os.environ) -> int | None:
    """The port of the pages: the environment's, else `after` + 1, else any free one (0). None for no pages.

    Raises ValueError for an unusable port.
    """
    setting = environ.get(PORT, "")
    if setting == OFF or environ.get(MLFLOW_PAGE) or access.token_file(environ) is not None:
        return None
    if not setting:
        return after + 1 if after < 65535 and is_free(after + 1) else 0
    if not setting.isdecimal() or not 0 < int(setting) < 65536:
        raise ValueError(f"{PORT}: found {setting!r}, expected a port from 1 to 65535, or {OFF}")
    if not is_free(int(setting)):
        raise ValueError(f"{PORT}: found port {setting} in use, expected a free one, or {OFF}")
    return int(setting)


def command(file: Path, port: int) -> list[str]:
    """The arguments for Python to serve the database in `file`."""
    return ["slipway.deploy.embedded.mlflow_pages", str(file), str(port)]


def main(file: str, port: str) -> None:
    """Create the database if it is missing, and become MLflow's server."""
    database.make_ready(Path(file))
    artifacts = (Path(file).parent / "mlartifacts").as_uri()
    serve = ["server", "--host", HOST, "--port", port, "--workers", "1", "--backend-store-uri", f"{database.URI}{file}"]
    folders = ["--default-artifact-root", artifacts, "--artifacts-destination", artifacts]
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")  # nothing here uses these jobs
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *serve, *folders])


if __name__ == "__main__":
    main(*sys.argv[1:])
