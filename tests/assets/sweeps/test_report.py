"""The report of a sweep: its numbers, its pictures, its page."""

import dataclasses
import json
import re

import pytest

from slipway.assets.sweeps.events import Asked, Ended, Event, Paused, Reported, Resumed, Started
from slipway.assets.sweeps.report.compared import compared
from slipway.assets.sweeps.report.importance import importance
from slipway.assets.sweeps.report.page import BEST, html
from slipway.assets.sweeps.report.results import SweepReport, rank_seconds, report
from slipway.assets.sweeps.report.text import markdown, shown
from slipway.assets.sweeps.state import SweepState, fold
from tests.assets.sweeps.simulation import CrashError, begun, budgeted, opened, power_law, whole

pytestmark = pytest.mark.pure

RUNGS = {"kind": "promotion", "rungs": [3, 9, 27, 81], "eta": 3}


def timed(log: list[Event]) -> list[Event]:
    """The same log with a second from each event to the next."""
    return [dataclasses.replace(event, at=float(at)) for at, event in enumerate(log)]


@pytest.fixture(scope="module")
def log() -> list[Event]:
    plan = opened(steps=81, scheduler=RUNGS, seed=1)
    return timed(whole(plan, budgeted(trials=27, parallel=6), power_law))


@pytest.fixture(scope="module")
def sweep(log: list[Event]) -> SweepState:
    return fold(log)


@pytest.fixture(scope="module")
def made(sweep: SweepState, log: list[Event]) -> SweepReport:
    return report(sweep, log, ranks_per_node=2)


def test_the_report_has_the_best_trial_and_its_parameters(made: SweepReport, sweep: SweepState):
    assert made.outcome == "complete"
    assert sweep.best is not None and made.best_trial == sweep.best.number
    assert made.best_parameters == sweep.trials[made.best_trial].parameters
    assert made.best_value == power_law(made.best_parameters, 81)
    assert made.order[0] == made.best_trial


def test_every_trial_has_a_row_with_its_curve(made: SweepReport):
    assert [row.trial for row in made.rows] == list(range(27))
    assert {row.outcome for row in made.rows} == {"completed", "stopped"}
    assert all(row.curve[-1][0] == row.last_step for row in made.rows)


def test_the_steps_of_the_rungs_are_all_that_was_trained_and_what_was_saved_is_all_the_rest(made: SweepReport):
    trained = sum(row.last_step for row in made.rows)
    assert sum(cost.steps for cost in made.rungs) == trained
    assert sum(cost.steps_saved for cost in made.rungs) == 27 * 81 - trained
    assert made.compute_saved == pytest.approx(1 - trained / (27 * 81))


def test_a_rung_counts_who_trained_to_it_and_who_went_on(made: SweepReport):
    assert [(cost.begin, cost.end) for cost in made.rungs] == [(0, 3), (3, 9), (9, 27), (27, 81)]
    assert made.rungs[0].trained == made.rungs[0].arrived == 27
    for lower, higher in zip(made.rungs, made.rungs[1:], strict=False):
        assert lower.went_on == higher.trained


def test_the_rank_hours_of_the_rungs_are_those_of_the_trials(made: SweepReport):
    assert made.rank_hours == pytest.approx(sum(row.rank_hours for row in made.rows))
    assert made.rank_hours == pytest.approx(sum(cost.rank_hours for cost in made.rungs))


def test_a_trial_holds_its_ranks_from_each_start_to_its_pause_or_its_end():
    held = [
        Asked(trial=0, parameters={}, until=3, at=100.0),
        Started(trial=0, job="a", nodes=("x", "y"), at=110.0),
        Paused(trial=0, step=3, at=130.0),
        Resumed(trial=0, until=9, at=500.0),
        Started(trial=0, job="a", nodes=("x",), at=505.0),
        Started(trial=0, job="a", nodes=("x",), at=506.0),  # adopted by another controller
        Ended(trial=0, outcome="completed", at=515.0),
    ]
    assert rank_seconds(held, ranks_per_node=4) == {0: 20 * 8 + 10 * 4}


def test_what_still_runs_counts_up_to_the_last_event():
    log = [Started(trial=0, job="a", nodes=("x",), at=10.0), Reported(trial=0, step=1, value=1.0, at=25.0)]
    assert rank_seconds(log, ranks_per_node=1) == {0: 15.0}


def test_the_best_trial_is_compared_with_the_recipe_at_the_last_step_that_both_have(made: SweepReport):
    assert made.won is not None and made.won.other == 0
    written = dict(made.rows[0].curve)
    assert made.won.step == max(written)
    value, best = written[made.won.step], power_law(made.best_parameters, made.won.step)
    assert value is not None and best is not None
    assert made.won.difference == pytest.approx(value - best)


def test_the_next_best_is_the_trial_that_would_be_the_best_without_it(made: SweepReport):
    assert made.next_best is not None and made.next_best.other == made.order[1]
    assert made.next_best.difference >= 0


def test_a_difference_within_the_given_noise_is_not_certain(sweep: SweepState):
    best, other = (sweep.trials[number] for number in report(sweep, [], 1).order[:2])
    found = compared(best, other, given=10.0)
    assert found is not None and found.noise == 10.0 and not found.certain
    certain = compared(best, other, given=1e-9)
    assert certain is not None and certain.certain


def test_trials_without_a_common_step_are_not_compared(sweep: SweepState):
    trial = sweep.trials[0]
    assert compared(trial, dataclasses.replace(trial, reports={5: 1.0}), None) is None


def test_the_parameter_that_matters_most_comes_first_and_the_shares_sum_to_one(sweep: SweepState):
    found = importance(sweep)
    assert found is not None
    assert sum(each.share for each in found) == pytest.approx(1)
    assert found[0].parameter == "optimiser.learning_rate"
    assert all(0 <= each.low <= each.high <= 1 for each in found)
    assert importance(sweep) == found


def test_more_trials_make_the_interval_of_an_importance_narrower():
    def width(trials: int) -> float:
        log = whole(opened(scheduler={"kind": "none"}), budgeted(trials=trials), power_law)
        found = importance(fold(log))
        assert found is not None
        return sum(each.high - each.low for each in found)

    assert width(60) < width(8)


def test_few_trials_have_no_importance():
    assert importance(fold(whole(opened(), budgeted(trials=3), power_law))) is None


def test_failures_are_reported_by_reason_with_the_trials_that_had_it():
    def failing(parameters, step):
        raise CrashError("exit code 1 | node a\nlost")

    log = whole(opened(), budgeted(trials=2, failed_trials=2), failing)
    made = report(fold(log), log, 1)
    assert [(each.reason, each.trials) for each in made.failures] == [("exit code 1 | node a\nlost", (0, 1))]
    assert (made.outcome, made.best_trial, made.best_parameters) == ("failed", None, {})
    assert r"exit code 1 \| node a lost |" in markdown(made)
    assert "exit code 1 | node a\nlost" in html(made)


def test_an_open_sweep_has_a_report_and_a_page_that_is_read_again(log: list[Event]):
    cut = next(index for index, event in enumerate(log) if isinstance(event, Paused))
    made = report(fold(log[: cut + 1]), log[: cut + 1], 1)
    assert made.outcome == "open" and made.chosen == ""
    assert {row.outcome for row in made.rows} >= {"running"}
    assert 'http-equiv="refresh"' in html(made)


def test_a_sweep_without_any_trial_has_a_page():
    log = [opened(), budgeted()]
    assert "<h1>Sweep curves-000000000000: open</h1>" in html(report(fold(log), log, 1))


def test_the_text_has_the_findings_the_rungs_the_trials_and_the_importance(made: SweepReport):
    text = markdown(made)
    assert text.startswith("# Sweep curves-000000000000: complete\n")
    assert f"Best: trial {made.best_trial}, validation loss {made.best_value:.4f}." in text
    assert "Against the recipe as it is written, trial 0, at step " in text
    assert "At full scale: trial " in text
    assert f"Early stopping saved {made.compute_saved:.0%} of the steps." in text
    assert text.count("| completed |") + text.count("| stopped |") == 27
    assert "| optimiser.learning_rate | " in text.split("## Importance")[1]


def test_a_text_with_a_limit_lists_the_best_trials_and_says_how_many_there_are(made: SweepReport):
    text = markdown(made, most=5)
    assert text.count("| completed |") + text.count("| stopped |") == 5
    assert f"| {made.best_trial} | " in text
    assert "The best 5 of 27 trials; the page has all of them." in text


def test_the_page_has_every_trial_and_picture_and_needs_nothing_from_elsewhere(made: SweepReport):
    page = html(made)
    assert all(f'id="trial-{number}"' in page for number in range(27))
    assert page.count("<svg") == 4
    links = set(re.findall(r'(?:src|href)="([^"]*)"', page))
    assert all(link.startswith("#") for link in links)
    assert "<script src" not in page and "@import" not in page and "url(http" not in page
    assert f'href="#trial-{made.best_trial}"' in page


def test_the_curves_of_the_best_trials_are_given_to_the_script_with_every_report(made: SweepReport):
    page = html(made)
    given = json.loads(re.search(r'id="curves">(.*?)</script>', page)[1])  # type: ignore[index]
    [figure] = given["figures"]
    rows = {f"trial {row.trial}": row for row in made.rows}
    drawn = {each["label"].partition(",")[0]: each["values"] for each in figure["series"]}
    assert list(drawn) == [f"trial {number}" for number in [*made.order[:BEST], 0]]
    for name, values in drawn.items():
        known = [(step, value) for step, value in zip(given["steps"], values, strict=True) if value is not None]
        assert known == [(step, pytest.approx(value, rel=1e-4)) for step, value in rows[name].curve]
    assert figure["series"][0]["label"] == f"trial {made.best_trial}, the best"
    assert figure["series"][-1]["label"] == "trial 0, as written"


def test_the_same_log_gives_the_same_page(made: SweepReport):
    assert html(made) == html(made)


def test_a_page_of_a_thousand_trials_is_below_a_megabyte(made: SweepReport):
    rows = [dataclasses.replace(made.rows[at % 27], trial=at) for at in range(1000)]
    many = dataclasses.replace(made, rows=tuple(rows), order=tuple(range(1000)), best_trial=0)
    page = html(many)
    assert page.count("<tr") > 1000 and len(page) < 1_000_000


def test_parameters_and_reasons_are_text_on_the_page_and_never_markup(made: SweepReport):
    evil = "<img src=x onerror=alert(1)>"
    row = dataclasses.replace(
        made.rows[0], outcome=f"failed: {evil}", parameters={**made.rows[0].parameters, "model.shape": evil}
    )
    assert evil not in html(dataclasses.replace(made, rows=(row, *made.rows[1:])))


def test_a_recipe_with_0_in_a_logarithmic_interval_has_a_page():
    rate = "optimiser.learning_rate"
    space = {rate: {"loguniform": [1e-4, 1.0]}, "optimiser.weight_decay": {"loguniform": [1e-6, 1e-2]}}
    written = {rate: 1e-3, "optimiser.weight_decay": 0.0}
    log = whole(*begun(space=space, written=written), lambda parameters, step: parameters[rate] + 1 / step)
    assert "1e-06 or 0" in html(report(fold(log), log, 1))


def test_a_population_has_saved_no_steps_as_children_take_the_places_of_others():
    log = whole(*begun(scheduler={"kind": "population", "every": 3}, parallel=8), power_law)
    made = report(fold(log), log, 1)
    children = sum(row.parent is not None for row in made.rows)
    assert children and made.planned == len(made.rows) == 8 + children
    assert made.compute_saved == made.rank_hours_saved == sum(cost.steps_saved for cost in made.rungs) == 0


def test_a_section_is_shown_by_its_fields():
    assert shown({"tensor": 2, "shard": "full"}) == "tensor: 2, shard: full"


def test_a_copy_is_compared_by_the_reports_of_the_trial_that_it_continues_too():
    """Trial 0 was stopped where the copy began: only the copy's parent has a value there."""
    begun_by = [(0, 3.0), (1, 2.0)]
    log: list[Event] = [opened(scheduler={"kind": "population", "every": 3}, written={}), budgeted(trials=2)]
    for number, value in begun_by:
        log += [Asked(trial=number, parameters={}, until=3), Started(trial=number, job="", nodes=("a",))]
        log += [Reported(trial=number, step=3, value=value), Paused(trial=number, step=3)]
    log += [Ended(trial=0, outcome="stopped"), Asked(trial=2, parameters={}, until=6, parent=1, step=3)]
    log += [Started(trial=2, job="", nodes=("a",)), Reported(trial=2, step=6, value=1.0)]
    found = report(fold(log), log, 1)
    assert found.best_trial == 2
    assert found.won is not None and (found.won.step, found.won.difference) == (3, 1.0)


def test_the_numbers_at_the_axes_of_a_picture_are_those_of_the_trials(sweep: SweepState, made: SweepReport):
    """Only what is drawn is made coarser, as a learning rate of 0.0001 would read 0.00."""
    assert re.search(r">\s*0\.0001\s*<", html(made)) is not None
