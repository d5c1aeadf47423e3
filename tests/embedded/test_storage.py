"""Dagster's storage of a home: processes that open it at the same moment, when it is not there yet, make one."""

import multiprocessing
import sqlite3
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from slipway.deploy.embedded import instance
from slipway.resources.home import Home

AT_ONCE = 4

pytestmark = pytest.mark.slow


def opened(home: Home, ready: Barrier) -> None:
    instance.prepare(home)
    ready.wait()
    with instance.open_storage(home) as storage:
        storage.get_runs_count()


def test_a_home_that_is_opened_at_once_for_the_first_time_is_whole(tmp_path: Path):
    spawning, home = multiprocessing.get_context("spawn"), Home(tmp_path / "home")
    ready = spawning.Barrier(AT_ONCE)
    processes = [spawning.Process(target=opened, args=(home, ready)) for _ in range(AT_ONCE)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * AT_ONCE
    for path in home.dagster.rglob("*.db"):
        with sqlite3.connect(path) as database:
            assert len(database.execute("SELECT * FROM alembic_version").fetchall()) == 1, path
