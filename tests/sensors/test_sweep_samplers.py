"""Every sampler of sweeps, through Dagster, with trials that are real trainings of the values that it drew."""

import math
from typing import Any

import pytest

from slipway.assets.sweeps.events import Proposed
from slipway.assets.sweeps.samplers import MODELS
from slipway.assets.sweeps.study import STARTUP
from tests.sensors.platform import Platform
from tests.sensors.test_sweep_schedulers import of, searched, trial

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

LOW, HIGH = 0.001, 0.03
RATE, DECAY = "optimizer.learning_rate", "optimizer.weight_decay"
NUMBERS = {RATE: {"loguniform": [LOW, HIGH]}, DECAY: {"uniform": [0.0, 0.3]}}
LISTED = {RATE: {"choice": [0.002, 0.02]}, DECAY: {"choice": [0.0, 0.1, 0.3]}}
SHORT = {"run.steps": 10, "validation.every": 10, "validation.sequences": 4, "checkpoint.every": 10}


@pytest.mark.parametrize("sampler", ["random", "quasi-random", "grid", *MODELS])
def test_each_trial_trains_with_the_values_that_the_sampler_drew(platform: Platform, sampler: str):
    space = LISTED if sampler == "grid" else NUMBERS
    drawn = STARTUP + 2  # so many that the samplers that learn draw from a model at last
    store, sweep = searched(platform, {"kind": "none"}, sampler=sampler, space=space, trial=SHORT, trials=drawn)
    trial_events = of(store, Proposed)
    assert [event.trial for event in trial_events] == list(range(len(sweep.trials)))
    assert {trial_state.state for trial_state in sweep.trials.values()} == {"completed"}
    for event in trial_events:
        numbers = trial(store, event.trial).specification().identity_config["optimizer"]
        assert {name: numbers[name.removeprefix("optimizer.")] for name in event.parameters} == event.parameters
    first, *others = [event.parameters for event in trial_events]
    assert first == dict(sweep.plan.written)
    assert all(_fits(parameters, space) for parameters in others)
    assert len({tuple(sorted(parameters.items())) for parameters in others}) == len(others)
    if sampler == "grid":  # the recipe as it is written is no point of this grid
        assert len(others) == math.prod(len(choice["choice"]) for choice in LISTED.values())


def _fits(parameters: dict[str, Any], space: dict[str, Any]) -> bool:
    if space is LISTED:
        return all(value in LISTED[name]["choice"] for name, value in parameters.items())
    return bool(LOW <= parameters[RATE] <= HIGH and 0.0 <= parameters[DECAY] <= 0.3)
