"""The decisions and actions of a sweep."""

import dataclasses
from typing import Any

import pytest

from assets.sweeps.decisions import Start, Stop, closing, decide, next_actions
from assets.sweeps.events import Asked, Closed, Decided, Ended, Event, Reported, Retried, Started
from assets.sweeps.space import Parameters
from assets.sweeps.state import SweepState, fold
from tests.assets.sweeps.simulation import CrashError, continued, opened, power_law, whole

pytestmark = pytest.mark.pure

LARGE = opened(trials=27, parallel=6, steps=81, rungs=(3, 9, 27))


def after(*events: Event, **plan: Any) -> SweepState:
    """A sweep in which trials 0, 1, ... were asked and started, then these events."""
    asked = [event for event in decide(fold([opened(**plan)])) if isinstance(event, Asked)]
    started = [Started(trial=each.trial, job=f"job-{each.trial}", nodes=("a",)) for each in asked]
    return fold([opened(**plan), *asked, *started, *events])


def reported(trial: int, step: int, value: float | None) -> Event:
    return Reported(trial=trial, step=step, value=value)


def failed(trial: int) -> Event:
    return Ended(trial=trial, outcome="failed", reason="out of memory")


def no_run(parameters: Parameters, step: int) -> float | None:
    raise CrashError("out of memory")


def test_as_many_trials_as_may_be_parallel_are_asked_and_started():
    sweep = fold([opened(parallel=3)])
    asked = decide(sweep)
    assert [event.trial for event in asked if isinstance(event, Asked)] == [0, 1, 2]
    sweep = fold([opened(parallel=3), *asked])
    assert next_actions(sweep) == [Start(number, 0, sweep.trials[number].parameters) for number in range(3)]


def test_a_start_stays_due_until_the_log_has_it():
    sweep = fold([opened(parallel=1), *decide(fold([opened(parallel=1)]))])
    assert next_actions(sweep) == next_actions(sweep) != []
    assert next_actions(sweep.after(Started(trial=0, job="job", nodes=("a",)))) == []


def test_the_order_of_arrival_at_a_rung_decides():
    worse_first = after(reported(0, 1, 2.0), reported(1, 1, 1.0))
    assert decide(worse_first) == [
        Decided(trial=0, step=1, verdict="go on"),
        Decided(trial=1, step=1, verdict="go on"),
    ]
    better_first = after(reported(1, 1, 1.0), reported(0, 1, 2.0))
    assert Decided(trial=0, step=1, verdict="stop") in decide(better_first)


def test_a_verdict_does_not_depend_on_what_was_read_together_with_it():
    together = after(reported(0, 1, 2.0), reported(1, 1, 1.0))
    apart = after(reported(0, 1, 2.0), Decided(trial=0, step=1, verdict="go on"), reported(1, 1, 1.0))
    assert decide(together)[1:] == decide(apart)


def test_a_report_past_a_rung_arrives_at_that_rung():
    assert Decided(trial=0, step=3, verdict="go on") in decide(after(reported(0, 4, 2.0)))


def test_a_report_that_comes_twice_counts_once():
    sweep = after(reported(0, 1, 2.0))
    assert sweep.after(reported(0, 1, 5.0)) == sweep


def test_a_diverged_trial_is_stopped():
    sweep = after(reported(0, 1, None))
    assert decide(sweep) == [Decided(trial=0, step=1, verdict="stop")]
    assert next_actions(sweep.after(decide(sweep)[0])) == [Stop(0, "stopped by successive halving")]


def test_a_stopped_trial_counts_as_running_until_it_has_ended():
    told = after(reported(0, 1, None), Decided(trial=0, step=1, verdict="stop"))
    assert decide(told) == []
    (asked,) = decide(told.after(Ended(trial=0, outcome="stopped")))
    assert isinstance(asked, Asked)
    assert asked.trial == 3


def test_a_failed_trial_is_retried_under_its_own_number():
    sweep = after(failed(1), retries=1)
    assert decide(sweep) == [Retried(trial=1, attempt=1)]
    sweep = sweep.after(decide(sweep)[0])
    assert next_actions(sweep) == [Start(1, 1, sweep.trials[1].parameters)]


def test_a_trial_that_fails_after_it_was_told_to_stop_is_not_retried():
    sweep = after(reported(0, 1, None), Decided(trial=0, step=1, verdict="stop"), failed(0), retries=1)
    assert sweep.trials[0].state == "stopped"
    assert not any(isinstance(event, Retried) for event in decide(sweep))


def test_retries_count_against_the_trial_and_failures_against_the_sweep():
    log = whole(opened(retries=2, failed_trials=1, parallel=1), no_run)
    attempts = [event.trial for event in log if isinstance(event, Ended)]
    assert attempts == [0, 0, 0, 1, 1, 1]
    assert fold(log).failed_for_good == [fold(log).trials[0], fold(log).trials[1]]
    assert log[-1] == Closed(
        outcome="failed",
        best_trial=None,
        best_value=None,
        reason="2 trials failed, at most 1 may; the last, trial 1: out of memory",
    )


def test_as_many_failures_as_allowed_do_not_end_the_sweep():
    def rarely(parameters, step):
        if parameters == first:
            raise CrashError("out of memory")
        return power_law(parameters, step)

    first = after(failed_trials=1).trials[0].parameters
    sweep = fold(whole(opened(failed_trials=1), rarely))
    assert sweep.closed is not None
    assert sweep.closed.outcome == "complete"
    assert len(sweep.failed_for_good) == 1


def test_a_sweep_without_a_finite_value_fails():
    closed = fold(whole(opened(), lambda parameters, step: None)).closed
    assert closed is not None
    assert (closed.outcome, closed.reason) == ("failed", "no trial ended with a finite value")


def test_running_trials_are_stopped_when_the_sweep_closes():
    sweep = after(failed(0))
    sweep = sweep.after(decide(sweep)[0])
    assert next_actions(sweep) == [Stop(trial, "the sweep is closed: failed") for trial in (1, 2)]


def test_a_person_may_close_a_sweep_and_keeps_the_best_so_far():
    sweep = after(reported(1, 9, 1.5), Ended(trial=1, outcome="completed", value=1.5))
    sweep = sweep.after(closing(sweep, "stopped", "cancelled"))
    assert decide(sweep) == []
    assert sweep.closed == Closed(outcome="stopped", best_trial=1, best_value=1.5, reason="cancelled")


def test_a_trial_that_trained_longer_is_better_than_one_that_was_stopped_lower():
    sweep = after(
        reported(0, 1, 0.5), Ended(trial=0, outcome="stopped"), Ended(trial=1, outcome="completed", value=1.5)
    )
    assert sweep.best is not None
    assert sweep.best.number == 1


def test_never_more_trials_run_than_allowed():
    sweep = fold([LARGE])
    for event in continued(sweep, power_law):
        sweep = sweep.after(event)
        assert len(sweep.running) <= LARGE.parallel


@pytest.mark.parametrize("seed", range(5))
def test_halving_saves_half_of_the_steps_and_finds_a_trial_close_to_the_best(seed):
    sweep = fold(whole(dataclasses.replace(LARGE, seed=seed), power_law))
    ends = [power_law(trial.parameters, LARGE.steps) for trial in sweep.trials.values()]
    assert len(ends) == LARGE.trials
    assert sweep.compute_saved > 0.5
    assert sweep.best is not None
    assert sweep.best.state == "completed"
    assert sweep.best.value is not None
    assert sweep.best.value - min(end for end in ends if end is not None) < 0.005


def test_without_rungs_every_trial_completes():
    sweep = fold(whole(opened(rungs=()), power_law))
    assert {trial.state for trial in sweep.trials.values()} == {"completed"}
    assert sweep.compute_saved == 0
