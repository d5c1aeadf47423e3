"""Commands of the pages, typed as they are printed, on a small home: a training, its incident, a sweep."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from slipway.assets.sweeps.store import SweepStore
from slipway.resources.trainings import incident_reports
from slipway.trainer.record import causes
from tests.assets.sweeps.simulation import budgeted, log_of, opened, power_law
from tests.cli import homes
from tests.cli.conftest import Call
from tests.commands.turn import Turn
from tests.commands.walk import AT_ONCE
from tests.resources.daily_report.nights import failed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def names(tmp_path: Path) -> Mapping[str, str]:
    """A home; returns what the turns call by a name."""
    home = homes.home(tmp_path / "home")
    store = homes.running(home, "tiny-decoder", 80, 400)
    failed(store, causes.KILLED, "node-1: rank 1 was killed: SIGKILL")
    sweep = SweepStore(home.durable / "sweeps" / "tiny-decoder-000000000000")
    sweep.create({"name": "tiny-decoder"})
    sweep.append(*log_of(opened(), budgeted(), power_law))
    [incident] = incident_reports.of(store, store.read())
    return {"training": store.id, "incident": incident.name}


def test_every_command_that_needs_no_instance_does_what_its_page_says(slipway: Call, names: Mapping[str, str]):
    wrong = [complaint for turn in AT_ONCE if (complaint := _wrong(slipway, turn.of(names)))]
    assert wrong == []
    assert Path("report.html").read_text().rstrip().endswith("</html>")
    assert Path("morning.html").read_text().rstrip().endswith("</html>")


def _wrong(slipway: Call, turn: Turn) -> str:
    """What is wrong with what became of it; empty for nothing."""
    _, *arguments = shlex.split(turn.typed or turn.printed)
    done = slipway(*arguments)
    output = done.out + done.err
    is_right = done.code == turn.code and re.search(turn.says, output) and "Traceback" not in output
    return "" if is_right else f"{turn.printed}: {done.code}: {output[-1500:]}"
