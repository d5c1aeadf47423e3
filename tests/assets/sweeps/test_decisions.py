"""The decisions and actions of a sweep."""

import dataclasses
from typing import Any

import pytest

from slipway.assets.sweeps import decisions
from slipway.assets.sweeps.actions import Continue, Pause, Start, Stop, next_actions
from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.events import (
    Closed,
    Decided,
    Ended,
    Event,
    Paused,
    Proposed,
    Reported,
    Resumed,
    Retried,
    Started,
    SweepPaused,
    SweepResumed,
)
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.state import Parameters, SweepState, fold
from tests.assets.sweeps.simulation import (
    LONG,
    SCHEDULERS,
    CrashError,
    begun,
    budgeted,
    continued,
    log_of,
    power_law,
)

pytestmark = pytest.mark.pure

LARGE = begun(trials=27, parallel=6, steps=81, scheduler=LONG)


def decide(sweep: SweepState) -> list[Event]:
    return decisions.decide(sweep, TrialSampler())


def after(*events: Event, **plan: Any) -> SweepState:
    """A sweep in which trials 0, 1, ... were asked and started, then these events."""
    proposed = [event for event in decide(fold(begun(**plan))) if isinstance(event, Proposed)]
    started = [Started(trial=proposal.trial, job=f"job-{proposal.trial}", nodes=("a",)) for proposal in proposed]
    return fold([*begun(**plan), *proposed, *started, *events])


def reported(trial: int, step: int, value: float | None) -> Event:
    return Reported(trial=trial, step=step, value=value)


def failed(trial: int) -> Event:
    return Ended(trial=trial, outcome="failed", reason="out of memory")


def no_run(parameters: Parameters, step: int) -> float | None:
    raise CrashError("out of memory")


def test_as_many_trials_as_may_be_parallel_are_asked_and_started():
    sweep = fold(begun(parallel=3))
    events = decide(sweep)
    assert [event.trial for event in events if isinstance(event, Proposed)] == [0, 1, 2]
    sweep = fold([*begun(parallel=3), *events])
    assert next_actions(sweep) == [Start(number, 0, dict(sweep.trials[number].parameters), 9) for number in range(3)]


def test_a_start_stays_due_until_the_log_has_it():
    sweep = fold([*begun(parallel=1), *decide(fold(begun(parallel=1)))])
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
    assert next_actions(sweep.after(decide(sweep)[0])) == [Stop(0, "stopped by the scheduler (stopping)")]


def test_a_stopped_trial_counts_as_running_until_it_has_ended():
    sweep = after(reported(0, 1, None), Decided(trial=0, step=1, verdict="stop"))
    assert decide(sweep) == []
    (proposal,) = decide(sweep.after(Ended(trial=0, outcome="stopped")))
    assert isinstance(proposal, Proposed)
    assert proposal.trial == 3


def test_a_failed_trial_is_retried_under_its_own_number():
    sweep = after(failed(1), retries=1)
    assert decide(sweep) == [Retried(trial=1, attempt=1)]
    sweep = sweep.after(decide(sweep)[0])
    assert next_actions(sweep) == [Start(1, 1, dict(sweep.trials[1].parameters), 9)]


def test_a_trial_that_fails_after_it_was_told_to_stop_is_not_retried():
    sweep = after(reported(0, 1, None), Decided(trial=0, step=1, verdict="stop"), failed(0), retries=1)
    assert sweep.trials[0].state == "stopped"
    assert not any(isinstance(event, Retried) for event in decide(sweep))


def test_retries_count_against_the_trial_and_failures_against_the_sweep():
    log = log_of(*begun(retries=2, failed_trials=1, parallel=1), no_run)
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
    sweep = fold(log_of(*begun(failed_trials=1), rarely))
    assert sweep.closed is not None
    assert sweep.closed.outcome == "complete"
    assert len(sweep.failed_for_good) == 1


def test_a_sweep_without_a_finite_value_fails():
    closed = fold(log_of(*begun(), lambda parameters, step: None)).closed
    assert closed is not None
    assert (closed.outcome, closed.reason) == ("failed", "no trial ended with a finite value")


def test_running_trials_are_stopped_when_the_sweep_closes():
    sweep = after(failed(0))
    sweep = sweep.after(decide(sweep)[0])
    assert sweep.closed is not None
    assert next_actions(sweep) == [Stop(trial, sweep.closed.reason) for trial in (1, 2)]


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
    sweep = fold(LARGE)
    for event in continued(sweep, power_law):
        sweep = sweep.after(event)
        assert len(sweep.running) <= LARGE[1].parallel


@pytest.mark.parametrize("seed", range(5))
def test_halving_saves_half_of_the_steps_and_finds_a_trial_close_to_the_best(seed):
    sweep = fold(log_of(dataclasses.replace(LARGE[0], seed=seed), LARGE[1], power_law))
    ends = [power_law(trial.parameters, LARGE[0].steps) for trial in sweep.trials.values()]
    assert len(ends) == LARGE[1].trials
    assert sweep.compute_saved > 0.5
    assert sweep.best is not None
    assert sweep.best.state == "completed"
    assert sweep.best.value is not None
    assert sweep.best.value - min(end for end in ends if end is not None) < 0.005


def test_without_rungs_every_trial_completes():
    sweep = fold(log_of(*begun(scheduler={"kind": "none"}), power_law))
    assert {trial.state for trial in sweep.trials.values()} == {"completed"}
    assert sweep.compute_saved == 0


PROMOTION = SCHEDULERS["promotion"]


def test_a_trial_goes_to_its_first_rung_and_goes_on_from_there_when_it_is_among_the_best():
    sweep = after(parallel=3, scheduler=PROMOTION, sampler="tpe")
    assert {trial.until for trial in sweep.running} == {1}
    for number, value in enumerate((3.0, 1.0, 2.0)):
        sweep = sweep.after(reported(number, 1, value), Paused(trial=number, step=1))
    resumed, *proposals = decide(sweep)
    assert resumed == Resumed(trial=1, until=3)
    assert [event.trial for event in proposals if isinstance(event, Proposed)] == [3, 4]
    assert Continue(1, 0, 1, 3) in next_actions(sweep.after(resumed))


def test_where_draws_learn_nothing_from_trials_all_come_to_their_first_rung_before_one_goes_on():
    sweep = after(parallel=3, trials=4, scheduler=PROMOTION, sampler="random")
    for number, value in enumerate((3.0, 1.0, 2.0)):
        sweep = sweep.after(reported(number, 1, value), Paused(trial=number, step=1))
    proposal, resumed, *more = decide(sweep)
    assert isinstance(proposal, Proposed) and proposal.trial == 3
    assert resumed == Resumed(trial=1, until=3) and not more


def test_once_no_trial_comes_any_more_the_share_that_goes_on_is_rounded_up():
    sweep = after(parallel=4, trials=4, scheduler=PROMOTION)
    for number, value in enumerate((4.0, 1.0, 2.0)):
        sweep = sweep.after(reported(number, 1, value), Paused(trial=number, step=1))
    assert decide(sweep) == [Resumed(trial=1, until=3)]
    sweep = sweep.after(*decide(sweep), reported(3, 1, 3.0), Paused(trial=3, step=1))
    assert decide(sweep) == [Resumed(trial=2, until=3)]


def test_a_paused_sweep_asks_nothing_and_its_trials_commit_and_leave():
    sweep = after(reported(0, 1, 2.0), SweepPaused(by="a test"), scheduler={"kind": "none"})
    assert decide(sweep) == []
    assert next_actions(sweep) == [Pause(0), Pause(1), Pause(2)]
    sweep = sweep.after(*(Paused(trial=number, step=number) for number in range(3)))
    assert decide(sweep) == [] and next_actions(sweep) == []


def test_a_resumed_sweep_goes_on_where_its_trials_were_going():
    sweep = after(SweepPaused(by="a test"), Paused(trial=0, step=4), scheduler={"kind": "none"})
    sweep = sweep.after(SweepResumed(by="a test"))
    assert decide(sweep) == [Resumed(trial=0, until=9)]
    assert Continue(0, 0, 4, 9) in next_actions(sweep.after(*decide(sweep)))


def test_a_goal_ends_the_sweep_with_the_trial_that_reached_it():
    sweep = after(reported(1, 3, 0.9), goal=1.0)
    *_, closed = decide(sweep)
    assert isinstance(closed, Closed)
    assert (closed.outcome, closed.best_trial, closed.best_value) == ("complete", 1, 0.9)


def test_a_budget_that_asks_for_more_reopens_a_sweep_that_was_complete():
    sweep = fold(log_of(*begun(trials=3), power_law))
    (proposal,) = decide(sweep.after(budgeted(trials=4)))
    assert isinstance(proposal, Proposed)
    assert proposal.trial == 3


def test_a_sweep_that_a_person_stopped_stays_closed():
    sweep = after()
    sweep = sweep.after(closing(sweep, "stopped"), budgeted(trials=40))
    assert sweep.closed is not None


def test_more_trials_at_a_time_begin_at_once_and_fewer_take_effect_as_trials_end():
    assert len(decide(after(budgeted(parallel=5)))) == 2
    fewer = after(budgeted(parallel=1), Ended(trial=0, outcome="completed", value=1.0))
    assert decide(fewer) == []


def test_trial_0_is_the_recipe_as_it_is_written():
    sweep = after()
    assert sweep.trials[0].parameters == sweep.plan.written


def test_a_sweep_whose_space_has_no_further_trial_is_complete_with_those_that_it_has_and_says_why():
    constraints = ("optimizer.weight_decay < 0 or model.layers > 9",)
    closed = fold(log_of(*begun(constraints=constraints), power_law)).closed
    assert closed is not None and (closed.outcome, closed.best_trial) == ("complete", 0)
    assert closed.reason == f"after 1 trial hardly any draw fits the constraints: {constraints[0]}"


def test_while_a_sweep_is_open_a_trial_that_runs_may_be_its_best():
    sweep = after(reported(0, 1, 2.0), reported(1, 3, 1.5), reported(2, 3, None))
    assert sweep.best is not None and (sweep.best.number, sweep.best.state, sweep.best.value) == (1, "running", 1.5)
