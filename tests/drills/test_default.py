"""The control of the other drills: what becomes of two trainers when nothing fences them."""

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from slipway.trainer.base.paths import CODE
from slipway.trainer.base.processes import carrying, parent_of
from tests.drills import graphql
from tests.drills.instance import free_port
from tests.drills.naive.definitions import TRAINER
from tests.drills.process_table import command_of, kill, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NAIVE = TRAINER.parent


@pytest.fixture
def url(tmp_path: Path, own_mark: dict[str, str]) -> Iterator[str]:
    """``dagster dev`` on the naive code location."""
    shutil.copy(NAIVE / "dagster.yaml", tmp_path)
    port = free_port()
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(NAIVE / "workspace.yaml"), "-p", str(port)]
    environment = {**os.environ, "DAGSTER_HOME": str(tmp_path), "PYTHONPATH": str(CODE), "PYTHONWARNINGS": "ignore"}
    with (tmp_path / "dev.log").open("wb") as log:
        dev = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(url), f"dagster dev answers; see {tmp_path}/dev.log")
        yield url
    finally:
        while survivors := carrying(own_mark):
            kill(survivors)
            time.sleep(0.05)
        dev.wait()


@pytest.mark.nightly
def test_dagsters_default_leaves_two_trainers_at_work_when_a_run_is_killed(url: str, own_mark: dict[str, str]):
    graphql.launch(url, "naive", [dg.AssetKey("training")], {})
    (first,) = wait_until(lambda: _trainers(own_mark), "the trainer has started")
    step = parent_of(first)
    assert step is not None
    worker = parent_of(step)
    assert worker is not None
    kill([worker, step])
    wait_until(lambda: len(_trainers(own_mark)) > 1, "the retry has started a second one")
    assert first in _trainers(own_mark)


def _trainers(mark: dict[str, str]) -> list[int]:
    return [pid for pid in carrying(mark) if str(TRAINER) in command_of(pid)]


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
