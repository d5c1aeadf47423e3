"""The report of a sweep."""

import pytest

from assets.sweeps.events import Ended
from assets.sweeps.report import importance, markdown, report
from assets.sweeps.state import fold
from tests.assets.sweeps.simulation import CrashError, opened, power_law, whole

pytestmark = pytest.mark.pure


@pytest.fixture(scope="module")
def sweep():
    return fold(whole(opened(trials=27, parallel=6, steps=81, rungs=(3, 9, 27), seed=1), power_law))


def test_the_report_has_the_best_trial_and_its_parameters(sweep):
    written = report(sweep)
    assert written.outcome == "complete"
    assert written.best_trial == sweep.best.number
    assert written.best_parameters == sweep.trials[written.best_trial].parameters
    assert written.best_value == power_law(written.best_parameters, 81)


def test_every_trial_has_a_row(sweep):
    rows = report(sweep).rows
    assert [row.trial for row in rows] == list(range(27))
    assert {row.outcome for row in rows} == {"completed", "stopped"}
    assert {row.last_step for row in rows} <= {3, 9, 27, 81}


def test_compute_saved_is_the_share_of_steps_not_trained(sweep):
    trained = sum(row.last_step for row in report(sweep).rows)
    assert report(sweep).compute_saved == pytest.approx(1 - trained / (27 * 81))


def test_the_parameter_that_matters_most_comes_first_and_the_shares_sum_to_one(sweep):
    shares = importance(sweep)
    assert shares is not None
    assert sum(shares.values()) == pytest.approx(1)
    assert next(iter(shares)) == "optimiser.learning_rate"
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert importance(sweep) == shares


def test_few_trials_have_no_importance():
    assert importance(fold(whole(opened(trials=3), power_law))) is None


def test_a_failed_trial_has_its_reason():
    def failing(parameters, step):
        raise CrashError("exit code 1 | node a\nlost")

    written = report(fold(whole(opened(trials=2, failed_trials=2), failing)))
    assert [row.outcome for row in written.rows] == ["failed: exit code 1 | node a\nlost"] * 2
    assert (written.outcome, written.best_trial, written.best_parameters) == ("failed", None, {})
    assert r"failed: exit code 1 \| node a lost |" in markdown(written)


def test_an_open_sweep_has_a_report_too():
    log = whole(opened(), power_law)
    cut = next(index for index, event in enumerate(log) if isinstance(event, Ended))
    written = report(fold(log[: cut + 1]))
    assert written.outcome == "open"
    assert {row.outcome for row in written.rows} >= {"running"}


def test_the_page_shows_the_best_the_savings_the_trials_and_the_importance(sweep):
    page = markdown(report(sweep))
    assert page.startswith("# Sweep curves-000000000000: complete\n")
    assert f"Best: trial {sweep.best.number}, value {sweep.best.value:.4f}." in page
    assert f"Early stopping saved {sweep.compute_saved:.0%} of the steps." in page
    assert page.count("| completed |") + page.count("| stopped |") == 27
    assert "| optimiser.learning_rate | " in page.split("## Importance")[1]
