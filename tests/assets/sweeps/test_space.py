"""The parameters of a trial: a pure function of seed, number and history."""

import math

import pytest

from assets.sweeps.space import STARTUP, Parameters, Space, TrialObservation, distributions, suggest

pytestmark = pytest.mark.pure

SPACE: Space = {
    "optimiser.learning_rate": {"loguniform": [1e-4, 1e-1]},
    "optimiser.weight_decay": {"uniform": [0, 0.5]},
    "model.layers": {"randint": [1, 3]},
    "run.precision": {"choice": ["fp32", "bf16"]},
}


def loss(parameters: Parameters) -> float:
    rate, decay = parameters["optimiser.learning_rate"], parameters["optimiser.weight_decay"]
    return float((math.log10(rate) + 2) ** 2 + decay)


def history(trials: int, stopped_at: int | None = None) -> list[TrialObservation]:
    drawn = [suggest(SPACE, "random", 1, number) for number in range(trials)]
    return [TrialObservation(parameters, loss(parameters), stopped_at) for parameters in drawn]


def test_every_domain_gives_values_within_its_ends():
    for number in range(50):
        drawn = suggest(SPACE, "random", 0, number)
        assert 1e-4 <= drawn["optimiser.learning_rate"] <= 1e-1
        assert 0 <= drawn["optimiser.weight_decay"] <= 0.5
        assert drawn["model.layers"] in (1, 2, 3)
        assert drawn["run.precision"] in ("fp32", "bf16")


def test_whole_numbers_reach_both_ends():
    assert {suggest(SPACE, "random", 0, number)["model.layers"] for number in range(30)} == {1, 2, 3}


def test_a_log_uniform_rate_falls_below_the_geometric_mean_half_of_the_time():
    drawn = [suggest(SPACE, "random", 0, number)["optimiser.learning_rate"] for number in range(100)]
    assert 35 <= sum(rate < 10**-2.5 for rate in drawn) <= 65


def test_random_depends_on_seed_and_number_alone():
    assert suggest(SPACE, "random", 7, 2) == suggest(SPACE, "random", 7, 2, history(9), [history(1)[0].parameters])
    assert suggest(SPACE, "random", 7, 2) != suggest(SPACE, "random", 7, 3) != suggest(SPACE, "random", 8, 3)


def test_the_order_of_the_parameters_in_the_recipe_makes_no_difference():
    assert suggest(dict(reversed(list(SPACE.items()))), "random", 0, 0) == suggest(SPACE, "random", 0, 0)


def test_tpe_starts_with_the_trials_of_random():
    assert suggest(SPACE, "tpe", 7, 2, history(STARTUP - 1)) == suggest(SPACE, "random", 7, 2)


def test_tpe_is_a_pure_function_of_the_history():
    running = [suggest(SPACE, "random", 2, 0)]
    assert suggest(SPACE, "tpe", 7, 12, history(12), running) == suggest(SPACE, "tpe", 7, 12, history(12), running)
    assert suggest(SPACE, "tpe", 7, 12, history(12)) != suggest(SPACE, "tpe", 7, 12, history(11))


def test_tpe_learns_where_the_good_trials_are():
    found = [loss(suggest(SPACE, "tpe", 7, number, history(40))) for number in range(40, 60)]
    drawn = [loss(suggest(SPACE, "random", 7, number)) for number in range(40, 60)]
    assert sum(found) < sum(drawn) / 2


def test_tpe_keeps_away_from_trials_that_are_running():
    past = history(12)
    alone = suggest(SPACE, "tpe", 7, 12, past)
    assert suggest(SPACE, "tpe", 7, 12, past, [alone] * 5) != alone


def test_tpe_learns_from_stopped_and_from_failed_trials():
    past = history(8, stopped_at=3)
    failed = [TrialObservation(each.parameters, None) for each in past]
    assert suggest(SPACE, "tpe", 7, 8, past) != suggest(SPACE, "tpe", 7, 8, failed) != suggest(SPACE, "random", 7, 8)


@pytest.mark.parametrize(
    "domain",
    [
        {"loguniform": [0, 1]},
        {"uniform": [1, 0]},
        {"uniform": [1]},
        {"uniform": ["a", "b"]},
        {"randint": [1, 2.5]},
        {"choice": []},
        {"normal": [0, 1]},
        {"uniform": [0, 1], "choice": [1]},
    ],
)
def test_an_invalid_domain_is_refused_by_name(domain):
    with pytest.raises(ValueError, match=r"space: model\.layers: found .* expected one of"):
        distributions({"model.layers": domain})
