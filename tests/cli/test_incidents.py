"""`slipway incidents --since`: the morning after, by the command."""

import json
from pathlib import Path

import pytest

from slipway.resources.home import Home
from tests.cli import homes
from tests.cli.conftest import Call
from tests.resources.daily_report.nights import SeededNight


@pytest.fixture
def night(tmp_path: Path) -> SeededNight:
    return SeededNight(Home(tmp_path / "home"))


def test_everything_since_a_time_is_told_what_waits_for_a_person_first(slipway: Call, night: SeededNight):
    night.of_ten_faults()
    result = slipway("incidents", "--since", "12h")
    assert result.code == 0
    lines = result.out.splitlines()
    assert "2 things wait for a person; 7 incidents" in lines[0]
    assert lines[2] == "Waiting for a person" and lines.index("Handled by the platform") > 5
    assert "    evidence: slipway incidents show killed-" in result.out


def test_the_same_is_had_as_json_and_as_a_page(slipway: Call, night: SeededNight, tmp_path: Path):
    night.of_ten_faults()
    result = slipway("incidents", "--since", "1d", "--json", "--page", tmp_path / "morning.html")
    report = json.loads(result.out)
    assert len([item for item in report["items"] if item["todo"]]) == 2 and report["sentence"] in (
        (tmp_path / "morning.html").read_text()
    )


def test_of_one_training_only_its_own_is_reported(slipway: Call, night: SeededNight):
    night.of_ten_faults()
    report = json.loads(slipway("incidents", "--since", "1d", "--training", "killed", "--json").out)
    assert [item["subject"].partition("-")[0] for item in report["items"]] == ["killed"]


def test_a_home_without_trainings_needs_nobody(slipway: Call):
    assert "nothing waits for a person" in slipway("incidents", "--since", "1d").out


def test_a_time_that_is_none_is_refused_with_what_is_expected(slipway: Call, night: SeededNight):
    homes.offered(night.home, "tiny")
    assert slipway("incidents", "--since", "yesterday").err == (
        "slipway: --since: found 'yesterday', expected a number and its unit, such as 90s, 10m, 12h or 7d\n"
    )
    assert "--page: found no --since" in slipway("incidents", "--page", "x.html").err
