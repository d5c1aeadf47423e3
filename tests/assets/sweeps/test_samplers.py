"""The parameters of a trial: a pure function of the sweep so far, whichever process draws them."""

import math
from typing import Any

import pytest

from slipway.assets.sweeps.events import Ended, Proposed, Reported
from slipway.assets.sweeps.samplers import TrialSampler
from slipway.assets.sweeps.state import Parameters, SweepState, fold
from tests.assets.sweeps.simulation import begun

pytestmark = pytest.mark.pure

SPACE = {
    "optimizer.learning_rate": {"loguniform": [1e-4, 1e-1]},
    "optimizer.weight_decay": {"uniform": [0, 0.5]},
    "model.layers": {"randint": [1, 3]},
    "optimizer.clip": {"uniform": [0, 1], "step": 0.1},
}
WRITTEN = {
    "optimizer.learning_rate": 1e-3,
    "optimizer.weight_decay": 0.1,
    "model.layers": 2,
    "optimizer.clip": 1.0,
}
STEPPED = {
    "space": {**SPACE, "model.width": {"loguniform": [64, 1024], "step": 64}},
    "written": {**WRITTEN, "model.width": 128},
}
CONDITIONAL: dict[str, dict[str, Any]] = {
    "optimizer.kind": {"choice": ["adamw", "muon"]},
    "optimizer.momentum": {"uniform": [0.8, 0.99], "when": {"optimizer.kind": ["muon"]}},
    "layout": {"choice": [{"tensor": 1}, {"tensor": 2}]},
}


def sweep(sampler: str, **changes: Any) -> SweepState:
    return fold(begun(**{"space": SPACE, "written": WRITTEN, "trials": 99, "sampler": sampler, **changes}))


def loss(parameters: Parameters) -> float:
    return float((math.log10(parameters["optimizer.learning_rate"]) + 2) ** 2 + parameters["optimizer.weight_decay"])


def searched(state: SweepState, trials: int, sampler: TrialSampler | None = None) -> SweepState:
    """The sweep after so many trials, of which the last three still run."""
    keeps = sampler or TrialSampler()
    for number in range(trials):
        parameters = keeps.parameters(state)
        assert parameters is not None
        state = state.after(Proposed(trial=number, parameters=parameters, until=9))
        if number >= 3:
            value = loss(state.trials[number - 3].parameters)
            state = state.after(
                Reported(trial=number - 3, step=9, value=value),
                Ended(trial=number - 3, outcome="completed", value=value),
            )
    return state


def test_trial_0_is_the_recipe_as_it_is_written_even_outside_the_space():
    written = {**WRITTEN, "model.layers": 12}
    assert TrialSampler().parameters(sweep("tpe", written=written)) == written


@pytest.mark.parametrize("sampler", ["random", "quasi-random", "tpe", "cma-es"])
def test_every_domain_gives_values_within_its_ends(sampler):
    for trial in searched(sweep(sampler, **STEPPED), 20).trials.values():
        drawn = trial.parameters
        assert 1e-4 <= drawn["optimizer.learning_rate"] <= 1e-1
        assert 0 <= drawn["optimizer.weight_decay"] <= 0.5
        assert drawn["model.layers"] in (1, 2, 3)
        assert drawn["optimizer.clip"] in [round(tenth / 10, 1) for tenth in range(11)]
        assert drawn["model.width"] in range(64, 1025, 64) and isinstance(drawn["model.width"], int)


@pytest.mark.parametrize("sampler", ["random", "quasi-random", "tpe", "cma-es"])
def test_a_process_that_comes_later_draws_what_the_first_one_would_have(sampler):
    first_sampler = TrialSampler()
    state = searched(sweep(sampler, **STEPPED), 14, first_sampler)
    assert first_sampler.parameters(state) == TrialSampler().parameters(state) == first_sampler.parameters(state)


@pytest.mark.slow
def test_a_gaussian_process_that_comes_later_draws_the_same():
    sampler = TrialSampler()
    state = searched(sweep("gp"), 10, sampler)
    assert sampler.parameters(state) == TrialSampler().parameters(state)


@pytest.mark.parametrize("sampler", ["random", "quasi-random", "tpe"])
def test_another_seed_draws_others(sampler):
    one, other = (searched(sweep(sampler, seed=seed), 3) for seed in (1, 2))
    assert one.trials[2].parameters != other.trials[2].parameters


def test_tpe_learns_where_the_good_trials_are():
    state = searched(sweep("tpe"), 40)
    losses = [loss(state.trials[number].parameters) for number in range(25, 40)]
    drawn = [loss(trial.parameters) for trial in searched(sweep("random"), 40).trials.values()][25:]
    assert sum(losses) < sum(drawn) / 2


def test_a_sequence_of_quasi_random_points_fills_every_quarter_of_an_interval():
    state = searched(sweep("quasi-random"), 9)
    quarters = [int(trial.parameters["optimizer.weight_decay"] * 8) for trial in list(state.trials.values())[1:]]
    assert sorted(quarters) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("sampler", ["random", "quasi-random", "tpe", "grid"])
def test_a_parameter_exists_only_where_its_condition_holds(sampler):
    space = {**CONDITIONAL, "optimizer.momentum": CONDITIONAL["optimizer.momentum"] | {"step": 0.01}}
    state = sweep(sampler, space=space, written={"optimizer.kind": "adamw", "layout": {"tensor": 1}})
    kinds = set()
    for trial in searched_freely(state, 12).trials.values():
        kinds.add(trial.parameters["optimizer.kind"])
        assert ("optimizer.momentum" in trial.parameters) == (trial.parameters["optimizer.kind"] == "muon")
        assert trial.parameters["layout"] in ({"tensor": 1}, {"tensor": 2})
    assert kinds == {"adamw", "muon"}


@pytest.mark.parametrize("sampler", ["random", "quasi-random", "tpe"])
def test_every_trial_fits_the_constraints(sampler):
    constraints = ("optimizer.weight_decay * 10 < model.layers", "model.layers > batch.micro")
    state = sweep(sampler, constraints=constraints, fixed={"batch.micro": 1})
    for trial in searched_freely(state, 12).trials.values():
        if trial.number:
            assert trial.parameters["optimizer.weight_decay"] * 10 < trial.parameters["model.layers"]
            assert trial.parameters["model.layers"] > 1


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_where_hardly_anything_fits_the_constraints_there_is_no_further_trial(sampler):
    state = sweep(sampler, constraints=("optimizer.weight_decay < 1e-7",))
    state = state.after(Proposed(trial=0, parameters=WRITTEN, until=9))
    assert TrialSampler().parameters(state) is None


def test_a_grid_has_every_combination_once_and_then_no_more():
    space = {"model.layers": {"randint": [1, 3]}, "optimizer.kind": {"choice": ["adamw", "muon"]}}
    state = sweep("grid", space=space, written={"model.layers": 1, "optimizer.kind": "adamw"})
    state = searched_freely(state, 6)
    assert len({tuple(sorted(trial.parameters.items())) for trial in state.trials.values()}) == 6
    assert TrialSampler().parameters(state) is None


def searched_freely(state: SweepState, trials: int) -> SweepState:
    """The sweep after so many trials that ended with one value each."""
    sampler = TrialSampler()
    for number in range(trials):
        parameters = sampler.parameters(state)
        assert parameters is not None
        ended = Ended(trial=number, outcome="completed", value=float(number))
        state = state.after(Proposed(trial=number, parameters=parameters, until=9), ended)
    return state
