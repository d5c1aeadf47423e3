"""The median rule: which trials stop, of curves that fall steeply at first."""

import pytest

from slipway.assets.sweeps.decisions import decide as decisions
from slipway.assets.sweeps.events import Decided, Event, Reported, Started
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.state import SweepState, fold
from tests.assets.sweeps.simulation import begun

pytestmark = pytest.mark.pure

STARTUP = 3
MEDIAN = {"kind": "median", "rungs": [1, 3, 9], "startup": STARTUP}
STEEP: dict[int, float | None] = {1: 9.0, 3: 1.0}
"""Its mean is 5, and its best value 1."""


def decide(sweep: SweepState) -> list[Event]:
    return decisions(sweep, TrialSampler())


def judged(*curves: dict[int, float | None]) -> list[str]:
    """The verdicts at step 3 of trials with these values, which come there one after the other."""
    sweep = fold(begun(scheduler=MEDIAN, trials=len(curves), parallel=len(curves)))
    sweep = sweep.after(*decide(sweep))
    verdicts = {}
    for number, curve in enumerate(curves):
        sweep = sweep.after(Started(trial=number, job="job", nodes=("a",)))
        for step, value in curve.items():
            sweep = sweep.after(Reported(trial=number, step=step, value=value))
            for event in decide(sweep):
                sweep = sweep.after(event)
                if isinstance(event, Decided) and event.step == 3:
                    verdicts[event.trial] = event.verdict
    return [verdicts[number] for number in range(len(curves))]


def test_a_trial_above_the_median_of_the_others_best_values_stops_although_it_is_below_their_means():
    *_, last = judged(STEEP, STEEP, STEEP, {1: 9.0, 3: 2.0})
    assert last == "stop"


def test_a_trial_at_the_median_goes_on_and_so_do_the_first_ones():
    assert judged(STEEP, STEEP, {1: 9.0, 3: 2.0}, STEEP) == ["go on"] * 4


def test_a_trial_that_was_better_before_is_judged_by_its_best_value():
    *_, last = judged(STEEP, STEEP, STEEP, {1: 0.5, 3: 2.0})
    assert last == "go on"
