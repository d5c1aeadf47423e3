"""Sweeps by the command, on a home with an open one."""

import json
from pathlib import Path

import pytest

from slipway.assets.sweeps.store import SweepStore
from slipway.resources.home import Home
from tests.assets.sweeps.simulation import budgeted, opened
from tests.cli import homes
from tests.cli.conftest import Call


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """The home of the command."""
    return homes.home(tmp_path / "home")


@pytest.fixture
def store(home: Home) -> SweepStore:
    """An open sweep of eight trials."""
    sweep = SweepStore(home.durable / "sweeps" / "curves-000000000000")
    sweep.create({"name": "curves"})
    sweep.open(opened(), budgeted())
    return sweep


def standing(slipway: Call) -> tuple[str, int]:
    [listed] = json.loads(slipway("sweeps", "list", "--json").out)
    return listed["state"], listed["of"]


def test_a_sweep_is_paused_resumed_added_to_and_stopped_by_the_beginning_of_its_name(slipway: Call, store: SweepStore):
    assert standing(slipway) == ("open", 8)
    assert "is to pause" in slipway("sweeps", "pause", "cur", "--why", "a test").out
    assert standing(slipway) == ("paused", 8)
    assert "is to go on" in slipway("sweeps", "resume", "cur").out
    assert "trials: 8 to 24" in slipway("sweeps", "add", "cur", "16").out
    assert standing(slipway) == ("open", 24)
    changed = json.loads(slipway("sweeps", "set", "cur", "parallel=8", "limits.retries=2", "--json").out)["changed"]
    assert changed == {"parallel": [3, 8], "limits.retries": [0, 2]}
    assert "is to stop" in slipway("sweeps", "stop", "cur").out
    assert standing(slipway) == ("stopped", 24)
    assert store.sweep in slipway("sweeps", "show", "cur").out


def test_what_a_sweep_cannot_do_is_said_in_one_line(slipway: Call, store: SweepStore):
    assert "found it under way, expected a paused one" in slipway("sweeps", "resume", "cur").err
    assert "seed: found 3, expected one of trials, parallel" in slipway("sweeps", "set", "cur", "seed=3").err
    assert "found none that begins so" in slipway("sweeps", "pause", "other").err
