"""What is wrong in a platform's settings of teams is reported with its line, its field, and what is expected."""

from pathlib import Path

import pytest
import yaml

from slipway.recipes.problems import InvalidRecipes
from slipway.resources import platform
from tests.kubernetes import settings


def problems(folder: Path, teams: object) -> list[str]:
    """The message about settings with this section, without the file's own path."""
    file = folder / "platform.yaml"
    document = {**settings.settings(folder / "durable", folder / "nvme"), "teams": teams}
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    with pytest.raises(InvalidRecipes) as refused:
        platform.load(file)
    all_problems = list(refused.value.problems)
    lines = file.read_text().splitlines()
    for problem in all_problems:
        assert problem.location.file == str(file)
        assert 1 <= int(str(problem).removeprefix(f"{file}:").split(":")[0]) <= len(lines)
    return [f"{problem.field}: found {problem.actual}, expected {problem.expected}" for problem in all_problems]


@pytest.mark.parametrize(
    ("team", "message"),
    [
        ({"quota": {"rank_hours": 0}}, "teams.research.quota.rank_hours"),
        ({"quota": {"rank_hours": "many"}}, "teams.research.quota.rank_hours"),
        ({"quota": {"rank_hours": 5, "per": "year"}}, "teams.research.quota.per"),
        ({"quota": {}}, "teams.research.quota.rank_hours"),
        ({"quota": {"rank_hours": 5, "hours": 1}}, "teams.research.quota.hours"),
        ({"prices": {"on_demand": -1, "spot": 1}}, "teams.research.prices.on_demand"),
    ],
)
def test_a_bad_field_of_a_team_is_reported_by_its_name(tmp_path: Path, team: object, message: str):
    [problem] = problems(tmp_path, {"research": team})
    assert problem.startswith(f"{message}: found ") and "expected " in problem


@pytest.mark.parametrize(
    ("name", "expected"),
    [("team:research", "expected the name without team:"), ("two words", "expected a name without spaces")],
)
def test_a_bad_name_of_a_team_is_reported_with_what_is_expected(tmp_path: Path, name: str, expected: str):
    [problem] = problems(tmp_path, {name: {}})
    assert expected.removeprefix("expected ") in problem
