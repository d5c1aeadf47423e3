"""Occupancy: one instance, or one command that needs it to be down, uses a home at a time."""

from pathlib import Path

import pytest

from slipway.deploy.embedded import CannotStart, home_lock, serve
from slipway.resources.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_no_instance_starts_while_a_command_keeps_it_down(home: Home):
    in_use = pytest.raises(CannotStart, match=r"found another process using it \(slipway restore, process \d+\)")
    with home_lock.kept_down(home, "slipway restore"), in_use, home_lock.taken(home):
        pass
    with home_lock.taken(home):
        pass


def test_no_command_keeps_an_instance_down_that_runs(home: Home):
    home.root.mkdir()
    with home_lock.taken(home) as lock:
        home_lock.describe(lock, "http://127.0.0.1:3000")
        in_use = pytest.raises(CannotStart, match=r"\(process \d+, http://127.0.0.1:3000\), expected none")
        with in_use, home_lock.kept_down(home, "slipway restore"):
            pass
    assert home_lock.current_user(home) is None


def test_down_ends_no_command_that_uses_the_home(home: Home):
    refused = pytest.raises(CannotStart, match="no instance runs; its home is used by slipway restore, process")
    with home_lock.kept_down(home, "slipway restore"), refused:
        serve.down(home)
