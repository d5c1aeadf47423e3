"""MLflow's pages beside an instance: `python -m slipway.deploy.embedded.mlflow_pages DATABASE PORT` serves a home's
database.

It is a side service: nothing waits for it, and an instance goes on when it ends. It is not started where somebody
guards Dagster's UI by a token, as MLflow asks for none, and not where SLIPWAY_MLFLOW_PAGE names another server.
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
    """The port to serve on: the one that the environment names, else `after` + 1, else any (0); None for no pages.

    Raises ValueError for one that cannot be used.
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
    """The arguments of Python that serve the database in `file`."""
    return ["slipway.deploy.embedded.mlflow_pages", str(file), str(port)]


def main(file: str, port: str) -> None:
    """Make the database where there is none, and become MLflow's server."""
    database.make_ready(Path(file))
    artefacts = (Path(file).parent / "mlartifacts").as_uri()
    serve = ["server", "--host", HOST, "--port", port, "--workers", "1", "--backend-store-uri", f"{database.URI}{file}"]
    folders = ["--default-artifact-root", artefacts, "--artifacts-destination", artefacts]
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")  # nothing here has such jobs
    os.execv(sys.executable, [sys.executable, "-m", "mlflow", *serve, *folders])


if __name__ == "__main__":
    main(*sys.argv[1:])
