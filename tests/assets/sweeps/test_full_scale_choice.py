"""The choice at full scale: the best trial's parameters, if they beat the recipe as it is written beyond the noise."""

from collections.abc import Mapping

import pytest

from slipway.assets.sweeps.decisions import closing
from slipway.assets.sweeps.events import Decided, Ended, Event, Paused, Proposed, Reported, Started
from slipway.assets.sweeps.full_scale_choice import FullScaleChoice, choose
from slipway.assets.sweeps.state import fold
from tests.assets.sweeps.simulation import budgeted, opened

pytestmark = pytest.mark.pure

WRITTEN = {"optimizer.learning_rate": 0.001}
DRAWN = {"optimizer.learning_rate": 0.01}


def trial(number: int, parameters: Mapping[str, float], values: Mapping[int, float], **fields: int) -> list[Event]:
    """A trial that trained to its last value, and completed at step 9, or was stopped before."""
    last = max(values)
    reports = [Reported(trial=number, step=step, value=value) for step, value in values.items()]
    begun = [Proposed(trial=number, parameters=parameters, until=9, **fields), Started(trial=number, job="", nodes=())]
    if last == 9:
        return [*begun, *reports, Ended(trial=number, outcome="completed", value=values[last])]
    stopped = [Decided(trial=number, step=last, verdict="stop"), Ended(trial=number, outcome="stopped")]
    return [*begun, *reports, *stopped]


def chosen(*trials: list[Event], noise: float | None = 0.0, scheduler: str = "stopping") -> FullScaleChoice | None:
    section = {"kind": scheduler, "rungs": [1, 3, 9], "eta": 3, "noise": noise}
    section = {"kind": scheduler, "every": 3} if scheduler == "population" else section
    sweep = fold([opened(scheduler=section), budgeted(), *(event for trial_events in trials for event in trial_events)])
    return choose(sweep.after(closing(sweep, "complete")))


def test_the_best_trial_is_taken_where_it_beats_the_recipe_as_it_is_written():
    choice = chosen(trial(0, WRITTEN, {1: 3.0, 9: 2.0}), trial(1, DRAWN, {1: 3.0, 9: 1.5}))
    assert choice is not None and (choice.trial, choice.parameters) == (1, DRAWN)
    assert choice.why == (
        "trial 1 is the best: after step 9 it is 0.5 below the recipe as it is written, and the noise is 0"
    )


def test_a_gain_inside_the_noise_leaves_the_recipe_as_it_is():
    choice = chosen(trial(0, WRITTEN, {9: 2.0}), trial(1, DRAWN, {9: 1.95}), noise=0.1)
    assert choice is not None and (choice.trial, choice.parameters) == (0, {})
    assert choice.why.endswith("the recipe stays as it is")


def test_noise_that_is_not_known_is_not_called_0():
    choice = chosen(trial(0, WRITTEN, {9: 2.0}), trial(1, DRAWN, {9: 1.95}), noise=None)
    assert choice is not None and choice.trial == 1
    assert choice.why.endswith("and the noise is not known, as there are too few reports")


def test_a_recipe_that_was_stopped_early_is_compared_at_the_last_step_that_both_reported():
    worse = chosen(trial(0, WRITTEN, {1: 3.0, 3: 2.0}), trial(1, DRAWN, {1: 3.1, 3: 2.2, 9: 1.5}))
    better = chosen(trial(0, WRITTEN, {1: 3.0, 3: 2.5}), trial(1, DRAWN, {1: 3.1, 3: 2.2, 9: 1.5}))
    assert worse is not None and worse.trial == 0
    assert better is not None and better.trial == 1


def test_a_sweep_that_is_not_complete_leads_to_nothing():
    sweep = fold([opened(), budgeted(), *trial(0, WRITTEN, {9: 2.0})])
    assert choose(sweep) is None
    assert choose(sweep.after(closing(sweep, "stopped", "a test"))) is None


def test_the_schedule_of_a_population_is_reported_in_shares_of_a_training():
    parent = [
        *trial(1, DRAWN, {3: 2.0})[:-2],
        Paused(trial=1, step=3),
        Ended(trial=1, outcome="stopped"),
    ]
    slower = {"optimizer.learning_rate": 0.008}
    child = trial(2, slower, {6: 1.8, 9: 1.5}, parent=1, step=3)
    choice = chosen(trial(0, WRITTEN, {3: 3.0, 9: 2.5}), parent, child, scheduler="population")
    assert choice is not None and choice.trial == 2
    assert [values for _, values in choice.schedule] == [DRAWN, slower]
    assert [share for share, _ in choice.schedule] == pytest.approx([0.0, 1 / 3])
