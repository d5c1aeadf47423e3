"""The report of a sweep: its numbers, its pictures, its page."""

import dataclasses
import json
import re

import pytest

from slipway.assets.sweeps.events import Ended, Event, Paused, Proposed, Reported, Resumed, Started
from slipway.assets.sweeps.report.compared import compared
from slipway.assets.sweeps.report.importance import importance
from slipway.assets.sweeps.report.page import BEST, html
from slipway.assets.sweeps.report.results import SweepReport, rank_seconds, report
from slipway.assets.sweeps.report.text import format_value, markdown
from slipway.assets.sweeps.state import SweepState, fold
from tests.assets.sweeps.simulation import CrashError, begun, budgeted, log_of, opened, power_law

pytestmark = pytest.mark.pure

RUNGS = {"kind": "promotion", "rungs": [3, 9, 27, 81], "eta": 3}


def timed(log: list[Event]) -> list[Event]:
    """The same log with a second from each event to the next."""
    return [dataclasses.replace(event, at=float(at)) for at, event in enumerate(log)]


@pytest.fixture(scope="module")
def log() -> list[Event]:
    plan = opened(steps=81, scheduler=RUNGS, seed=1)
    return timed(log_of(plan, budgeted(trials=27, parallel=6), power_law))


@pytest.fixture(scope="module")
def sweep(log: list[Event]) -> SweepState:
    return fold(log)


@pytest.fixture(scope="module")
def sweep_report(sweep: SweepState, log: list[Event]) -> SweepReport:
    return report(sweep, log, ranks_per_node=2)


def test_the_report_has_the_best_trial_and_its_parameters(sweep_report: SweepReport, sweep: SweepState):
    assert sweep_report.outcome == "complete"
    assert sweep.best is not None and sweep_report.best_trial == sweep.best.number
    assert sweep_report.best_parameters == sweep.trials[sweep_report.best_trial].parameters
    assert sweep_report.best_value == power_law(sweep_report.best_parameters, 81)
    assert sweep_report.order[0] == sweep_report.best_trial


def test_every_trial_has_a_row_with_its_curve(sweep_report: SweepReport):
    assert [row.trial for row in sweep_report.rows] == list(range(27))
    assert {row.outcome for row in sweep_report.rows} == {"completed", "stopped"}
    assert all(row.curve[-1][0] == row.last_step for row in sweep_report.rows)


def test_the_steps_of_the_rungs_are_all_that_was_trained_and_what_was_saved_is_all_the_rest(sweep_report: SweepReport):
    trained = sum(row.last_step for row in sweep_report.rows)
    assert sum(cost.steps for cost in sweep_report.rungs) == trained
    assert sum(cost.steps_saved for cost in sweep_report.rungs) == 27 * 81 - trained
    assert sweep_report.compute_saved == pytest.approx(1 - trained / (27 * 81))


def test_a_rung_counts_who_trained_to_it_and_who_went_on(sweep_report: SweepReport):
    assert [(cost.begin, cost.end) for cost in sweep_report.rungs] == [(0, 3), (3, 9), (9, 27), (27, 81)]
    assert sweep_report.rungs[0].trained == sweep_report.rungs[0].arrived == 27
    for lower, higher in zip(sweep_report.rungs, sweep_report.rungs[1:], strict=False):
        assert lower.went_on == higher.trained


def test_the_rank_hours_of_the_rungs_are_those_of_the_trials(sweep_report: SweepReport):
    assert sweep_report.rank_hours == pytest.approx(sum(row.rank_hours for row in sweep_report.rows))
    assert sweep_report.rank_hours == pytest.approx(sum(cost.rank_hours for cost in sweep_report.rungs))


def test_a_trial_holds_its_ranks_from_each_start_to_its_pause_or_its_end():
    events = [
        Proposed(trial=0, parameters={}, until=3, at=100.0),
        Started(trial=0, job="a", nodes=("x", "y"), at=110.0),
        Paused(trial=0, step=3, at=130.0),
        Resumed(trial=0, until=9, at=500.0),
        Started(trial=0, job="a", nodes=("x",), at=505.0),
        Started(trial=0, job="a", nodes=("x",), at=506.0),  # adopted by another controller
        Ended(trial=0, outcome="completed", at=515.0),
    ]
    assert rank_seconds(events, ranks_per_node=4) == {0: 20 * 8 + 10 * 4}


def test_what_still_runs_counts_up_to_the_last_event():
    log = [Started(trial=0, job="a", nodes=("x",), at=10.0), Reported(trial=0, step=1, value=1.0, at=25.0)]
    assert rank_seconds(log, ranks_per_node=1) == {0: 15.0}


def test_the_best_trial_is_compared_with_the_recipe_at_the_last_step_that_both_have(sweep_report: SweepReport):
    assert sweep_report.won is not None and sweep_report.won.other == 0
    written = dict(sweep_report.rows[0].curve)
    assert sweep_report.won.step == max(written)
    value, best = written[sweep_report.won.step], power_law(sweep_report.best_parameters, sweep_report.won.step)
    assert value is not None and best is not None
    assert sweep_report.won.difference == pytest.approx(value - best)


def test_the_next_best_is_the_trial_that_would_be_the_best_without_it(sweep_report: SweepReport):
    assert sweep_report.next_best is not None and sweep_report.next_best.other == sweep_report.order[1]
    assert sweep_report.next_best.difference >= 0


def test_a_difference_within_the_given_noise_is_not_certain(sweep: SweepState):
    best, other = (sweep.trials[number] for number in report(sweep, [], 1).order[:2])
    comparison = compared(best, other, known_noise=10.0)
    assert comparison is not None and comparison.noise == 10.0 and not comparison.certain
    certain = compared(best, other, known_noise=1e-9)
    assert certain is not None and certain.certain


def test_trials_without_a_common_step_are_not_compared(sweep: SweepState):
    trial = sweep.trials[0]
    assert compared(trial, dataclasses.replace(trial, reports={5: 1.0}), None) is None


def test_the_parameter_that_matters_most_comes_first_and_the_shares_sum_to_one(sweep: SweepState):
    importances = importance(sweep)
    assert importances is not None
    assert sum(parameter.share for parameter in importances) == pytest.approx(1)
    assert importances[0].parameter == "optimizer.learning_rate"
    assert all(0 <= parameter.low <= parameter.high <= 1 for parameter in importances)
    assert importance(sweep) == importances


def test_more_trials_make_the_interval_of_an_importance_narrower():
    def width(trials: int) -> float:
        log = log_of(opened(scheduler={"kind": "none"}), budgeted(trials=trials), power_law)
        importances = importance(fold(log))
        assert importances is not None
        return sum(parameter.high - parameter.low for parameter in importances)

    assert width(60) < width(8)


def test_few_trials_have_no_importance():
    assert importance(fold(log_of(opened(), budgeted(trials=3), power_law))) is None


def test_failures_are_reported_by_reason_with_the_trials_that_had_it():
    def failing(parameters, step):
        raise CrashError("exit code 1 | node a\nlost")

    log = log_of(opened(), budgeted(trials=2, failed_trials=2), failing)
    failed_report = report(fold(log), log, 1)
    assert [(failure.reason, failure.trials) for failure in failed_report.failures] == [
        ("exit code 1 | node a\nlost", (0, 1))
    ]
    assert (failed_report.outcome, failed_report.best_trial, failed_report.best_parameters) == ("failed", None, {})
    assert r"exit code 1 \| node a lost |" in markdown(failed_report)
    assert "exit code 1 | node a\nlost" in html(failed_report)


def test_an_open_sweep_has_a_report_and_a_page_that_is_read_again(log: list[Event]):
    cut = next(index for index, event in enumerate(log) if isinstance(event, Paused))
    open_report = report(fold(log[: cut + 1]), log[: cut + 1], 1)
    assert open_report.outcome == "open" and open_report.chosen == ""
    assert {row.outcome for row in open_report.rows} >= {"running"}
    assert 'http-equiv="refresh"' in html(open_report)


def test_a_sweep_without_any_trial_has_a_page():
    log = [opened(), budgeted()]
    assert "<h1>Sweep curves-000000000000: open</h1>" in html(report(fold(log), log, 1))


def test_the_text_has_the_findings_the_rungs_the_trials_and_the_importance(sweep_report: SweepReport):
    text = markdown(sweep_report)
    assert text.startswith("# Sweep curves-000000000000: complete\n")
    assert f"Best: trial {sweep_report.best_trial}, validation loss {sweep_report.best_value:.4f}." in text
    assert "Against the recipe as it is written, trial 0, at step " in text
    assert "At full scale: trial " in text
    assert f"Early stopping saved {sweep_report.compute_saved:.0%} of the steps." in text
    assert text.count("| completed |") + text.count("| stopped |") == 27
    assert "| optimizer.learning_rate | " in text.split("## Importance")[1]


def test_a_text_with_a_limit_lists_the_best_trials_and_says_how_many_there_are(sweep_report: SweepReport):
    text = markdown(sweep_report, most=5)
    assert text.count("| completed |") + text.count("| stopped |") == 5
    assert f"| {sweep_report.best_trial} | " in text
    assert "The best 5 of 27 trials; the page has all of them." in text


def test_the_page_has_every_trial_and_picture_and_needs_nothing_from_elsewhere(sweep_report: SweepReport):
    page = html(sweep_report)
    assert all(f'id="trial-{number}"' in page for number in range(27))
    assert page.count("<svg") == 4
    links = set(re.findall(r'(?:src|href)="([^"]*)"', page))
    assert all(link.startswith("#") for link in links)
    assert "<script src" not in page and "@import" not in page and "url(http" not in page
    assert f'href="#trial-{sweep_report.best_trial}"' in page


def test_the_curves_of_the_best_trials_are_given_to_the_script_with_every_report(sweep_report: SweepReport):
    page = html(sweep_report)
    curves = json.loads(re.search(r'id="curves">(.*?)</script>', page)[1])  # type: ignore[index]
    [figure] = curves["figures"]
    rows = {f"trial {row.trial}": row for row in sweep_report.rows}
    drawn = {series["label"].partition(",")[0]: series["values"] for series in figure["series"]}
    assert list(drawn) == [f"trial {number}" for number in [*sweep_report.order[:BEST], 0]]
    for name, values in drawn.items():
        known = [(step, value) for step, value in zip(curves["steps"], values, strict=True) if value is not None]
        assert known == [(step, pytest.approx(value, rel=1e-4)) for step, value in rows[name].curve]
    assert figure["series"][0]["label"] == f"trial {sweep_report.best_trial}, the best"
    assert figure["series"][-1]["label"] == "trial 0, as written"


def test_the_same_log_gives_the_same_page(sweep_report: SweepReport):
    assert html(sweep_report) == html(sweep_report)


def test_a_page_of_a_thousand_trials_is_below_a_megabyte(sweep_report: SweepReport):
    rows = [dataclasses.replace(sweep_report.rows[at % 27], trial=at) for at in range(1000)]
    many = dataclasses.replace(sweep_report, rows=tuple(rows), order=tuple(range(1000)), best_trial=0)
    page = html(many)
    assert page.count("<tr") > 1000 and len(page) < 1_000_000


def test_parameters_and_reasons_are_text_on_the_page_and_never_markup(sweep_report: SweepReport):
    evil = "<img src=x onerror=alert(1)>"
    row = dataclasses.replace(
        sweep_report.rows[0],
        outcome=f"failed: {evil}",
        parameters={**sweep_report.rows[0].parameters, "model.shape": evil},
    )
    assert evil not in html(dataclasses.replace(sweep_report, rows=(row, *sweep_report.rows[1:])))


def test_a_recipe_with_0_in_a_logarithmic_interval_has_a_page():
    rate = "optimizer.learning_rate"
    space = {rate: {"loguniform": [1e-4, 1.0]}, "optimizer.weight_decay": {"loguniform": [1e-6, 1e-2]}}
    written = {rate: 1e-3, "optimizer.weight_decay": 0.0}
    log = log_of(*begun(space=space, written=written), lambda parameters, step: parameters[rate] + 1 / step)
    assert "1e-06 or 0" in html(report(fold(log), log, 1))


def test_a_population_has_saved_no_steps_as_children_take_the_places_of_others():
    log = log_of(*begun(scheduler={"kind": "population", "every": 3}, parallel=8), power_law)
    population_report = report(fold(log), log, 1)
    children = sum(row.parent is not None for row in population_report.rows)
    assert children and population_report.planned == len(population_report.rows) == 8 + children
    assert (
        population_report.compute_saved
        == population_report.rank_hours_saved
        == sum(cost.steps_saved for cost in population_report.rungs)
        == 0
    )


def test_a_section_is_shown_by_its_fields():
    assert format_value({"tensor": 2, "shard": "full"}) == "tensor: 2, shard: full"


def test_a_copy_is_compared_by_the_reports_of_the_trial_that_it_continues_too():
    """Trial 0 was stopped where the copy began: only the copy's parent has a value there."""
    begun_by = [(0, 3.0), (1, 2.0)]
    log: list[Event] = [opened(scheduler={"kind": "population", "every": 3}, written={}), budgeted(trials=2)]
    for number, value in begun_by:
        log += [Proposed(trial=number, parameters={}, until=3), Started(trial=number, job="", nodes=("a",))]
        log += [Reported(trial=number, step=3, value=value), Paused(trial=number, step=3)]
    log += [Ended(trial=0, outcome="stopped"), Proposed(trial=2, parameters={}, until=6, parent=1, step=3)]
    log += [Started(trial=2, job="", nodes=("a",)), Reported(trial=2, step=6, value=1.0)]
    copy_report = report(fold(log), log, 1)
    assert copy_report.best_trial == 2
    assert copy_report.won is not None and (copy_report.won.step, copy_report.won.difference) == (3, 1.0)


def test_the_numbers_at_the_axes_of_a_picture_are_those_of_the_trials(sweep: SweepState, sweep_report: SweepReport):
    """Only what is drawn is made coarser, as a learning rate of 0.0001 would read 0.00."""
    assert re.search(r">\s*0\.0001\s*<", html(sweep_report)) is not None
