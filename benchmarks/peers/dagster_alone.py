"""Dagster alone: its own webserver over a code location that knows nothing of Slipway.

`bare` serves one asset and no event, which tells what of a page's seconds is Dagster's own.
"""

import contextlib
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import until
from tests.embedded.slipway import free_port

ASSET = "only_asset"
BARE = f"""import dagster as dg


@dg.asset
def {ASSET}() -> None:
    pass


defs = dg.Definitions(assets=[{ASSET}])
"""
START_SECONDS = 120.0


@contextlib.contextmanager
def bare(folder: Path) -> Iterator[str]:
    """The address of a Dagster with one asset and an empty instance in `folder`."""
    folder.mkdir(parents=True)
    (folder / "bare.py").write_text(BARE)
    with served(folder, folder / "bare.py") as url:
        yield url


@contextlib.contextmanager
def served(home: Path, code: Path) -> Iterator[str]:
    """The address of Dagster's webserver over the instance in `home` and a file of definitions."""
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    port, environ = free_port(), {**os.environ, "DAGSTER_HOME": str(home)}
    url, command = f"http://127.0.0.1:{port}", ["dagster_webserver", "-f", str(code), "-p", str(port)]
    with (home / "webserver.log").open("wb") as log:
        server = subprocess.Popen([sys.executable, "-m", *command], env=environ, stdout=log, stderr=log)
    try:
        until(lambda: _answers(f"{url}/server_info"), "Dagster alone answers", START_SECONDS)
        yield url
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
