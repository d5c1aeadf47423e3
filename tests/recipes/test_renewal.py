"""A section `renewal` that contradicts itself, or starts nothing, is reported with its line and field."""

import pytest

from slipway.recipes.load import load
from tests.recipes.conftest import TRAINING, Folder

pytestmark = pytest.mark.pure
RETRAIN = 'retrain: "0 3 * * 0"'


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (
            "{cool_down_hours: 2}",
            'renewal: found {"cool_down_hours": 2}, expected one or more of new_data, drift, live_drift, quality',
        ),
        (
            '{quality: "0 25 * * *"}',
            'renewal.quality: found "0 25 * * *", expected a cron string whose hour is * or 0 to 23 (with , - or /)',
        ),
        ("{new_data: 1.5}", "renewal.new_data: found 1.5, expected 1 or less"),
        ("{new_data: 0.5, from_champion: 1}", "renewal.from_champion: found 1, expected true or false"),
    ],
)
def test_a_renewal_that_cannot_be_is_reported(folder: Folder, section: str, problem: str):
    line = folder.edit(TRAINING, RETRAIN, f"{RETRAIN}\nrenewal: {section}")
    assert folder.problems() == [f"{TRAINING}:{line + 1}: {problem}"]


def test_a_budget_alone_bounds_the_schedule_and_without_one_it_is_reported(folder: Folder):
    folder.edit(TRAINING, RETRAIN, f"{RETRAIN}\nrenewal: {{gpu_hours: 8}}")
    assert any(
        training.renewal and training.renewal.gpu_hours == 8 for training in load(folder.path, {}).trainings.values()
    )
    line = folder.edit(TRAINING, RETRAIN, "retrain: null")
    expected = "expected retrain beside it, or one or more of new_data, drift, live_drift, quality in it"
    assert folder.problems() == [f'{TRAINING}:{line + 1}: renewal: found {{"gpu_hours": 8}}, {expected}']


def test_a_schedule_whose_day_never_comes_is_reported(folder: Folder):
    line = folder.edit(TRAINING, RETRAIN, 'retrain: "0 3 31 2 *"')
    expected = "expected a cron string whose day of the month comes in one of its months"
    assert folder.problems() == [f'{TRAINING}:{line}: retrain: found "0 3 31 2 *", {expected}']
