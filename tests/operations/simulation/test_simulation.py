"""Simulation: seeded histories of failures, whose time adds up, and which agree with what can be computed."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipway.operations.simulation import settings as scenario_settings
from slipway.operations.simulation import studies
from slipway.operations.simulation.play import SimulatedTime, play
from slipway.operations.simulation.settings import LLAMA_3, Scenario

pytestmark = pytest.mark.pure

LARGE = Scenario(gpus=16_384, spares=1000)
LONG = replace(LARGE, days=5400.0)


def parts(played: SimulatedTime) -> float:
    return sum(
        (
            played.steps,
            played.checkpoints,
            played.repeated,
            played.undetected,
            played.restarting,
            played.missing,
        )
    )


def test_the_same_seed_gives_the_same_history_and_another_one_another():
    assert play(LARGE, 1) == play(LARGE, 1)
    assert play(LARGE, 1).failures != play(LARGE, 2).failures or play(LARGE, 1).ettr != play(LARGE, 2).ettr


@settings(max_examples=30)
@given(
    st.sampled_from([8, 256, 16_384, 100_000]),
    st.floats(0, 600),
    st.floats(0.01, 60),
    st.integers(0, 50),
    st.booleans(),
    st.integers(0, 5),
)
def test_the_time_adds_up(gpus: int, restart: float, stall: float, spares: int, shrinks: bool, seed: int):
    scenario = Scenario(gpus=gpus, restart=restart, stall=stall, spares=spares, shrinks=shrinks)
    played = play(scenario, seed)
    assert parts(played) == pytest.approx(played.seconds, rel=1e-6)
    assert 0 <= played.ettr <= 1


def test_there_are_as_many_failures_as_the_rate_says():
    assert play(LONG).failures == pytest.approx(LONG.days * 86_400 / LONG.between, rel=0.03)


def test_without_costs_nothing_is_lost():
    free = replace(LARGE, detect=0.0, hang=0.0, restart=0.0, restore=0.0, warm_up=0.0, stall=1e-6, interval=0.1)
    assert play(free).ettr > 0.9999


def test_it_agrees_with_dalys_formula_where_that_holds():
    """Daly 2006, equation 13: the wall time of work W is M e^(R/M) (e^((t+C)/M) - 1) W / t."""
    interval, recovery = 600.0, 300.0
    played = play(
        replace(LONG, interval=interval, stall=20.0, detect=0.0, hang=0.0, restart=recovery, restore=0.0, warm_up=0.0)
    )
    mean = LONG.between
    wall = mean * math.exp(recovery / mean) * math.expm1((interval + 20.0) / mean) / interval
    assert played.ettr == pytest.approx(1 / wall, rel=0.005)


def test_the_best_interval_is_near_dalys():
    best, daly = studies.best_interval(LONG)
    assert 0.5 <= best / daly <= 2


def test_silent_causes_take_longer_to_find():
    quick, slow = play(replace(LONG, hang=20.0)), play(replace(LONG, hang=2000.0))
    assert slow.undetected > 2 * quick.undetected
    assert slow.by_cause["silent data corruption"] > 10 * quick.by_cause["silent data corruption"]


def test_enough_spares_find_a_place_for_nearly_every_failure():
    needed = studies.spares_needed(replace(LONG, spares=0))
    assert play(replace(LONG, spares=needed)).short <= 0.01 < play(replace(LONG, spares=needed - 1)).short
    per_day = LONG.gpus * LONG.failures_per_gpu_day
    taken = sum(weight for weight, takes in LLAMA_3.values() if takes) / sum(weight for weight, _ in LLAMA_3.values())
    assert per_day * taken < needed < 4 * per_day * taken, "as many as are in repair at once, and some more"


def test_a_training_that_waits_loses_more_than_one_that_shrinks():
    none = replace(LARGE, spares=0)
    assert play(none).ettr > play(replace(none, shrinks=False)).ettr


def test_every_improvement_gains_and_replicas_the_most_at_a_hundred_thousand():
    improvements = {
        improvement.change: improvement
        for improvement in studies.improvements(Scenario(gpus=100_000, days=200, restart=600.0))
    }
    assert all(
        improvement.gained_days > 0
        for name, improvement in improvements.items()
        if name != "checkpoints twice as often"
    )
    assert max(improvements.values(), key=lambda improvement: improvement.ettr).change.startswith("8 replicas")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stal=1", "found the field 'stal', expected one of days, "),
        ("stall=much", "found 'much', expected a number"),
        ("spares=1.5", "found '1.5', expected a whole number"),
        ("shrinks=1", "found '1', expected true or false"),
        ("stall=0", "stall: found 0.0, expected a number above 0"),
        ("detect=nan", "detect: found nan, expected 0 or more"),
        ("days=inf", "days: found inf, expected a finite number"),
        ("days=1e9", "days: found 1000000000.0, at a failure each 1.6e.05 s these would have 5.39e.08 failures"),
        ("failures_per_gpu_day=1e9", "days: found 54.0, at a failure each 8.44e-08 s these would have"),
        ("restart=1e12", "restart: found 1000000000000.0, with restore and warm_up a start takes 1e.12 s, and at a"),
        ("replicas=129", "replicas: found 129, expected 128 at most: a node or more for each"),
        ("pause=5", "pause: found 5.0, expected replicas of 2 or more"),
        ("gpus_per_node=1000", "gpus: found 1024, expected a multiple of gpus_per_node .1000"),
    ],
)
def test_a_wrong_field_is_one_clear_message(text: str, message: str):
    with pytest.raises(ValueError, match=message.replace("'", ".")):
        scenario_settings.scenario(1024, [text])


def test_a_field_that_is_given_twice_is_refused():
    with pytest.raises(ValueError, match=r"days=2: found the field .days. twice, expected it once"):
        scenario_settings.scenario(1024, ["days=1", "days=2"])


def test_fields_are_read_as_their_kind():
    scenario = scenario_settings.scenario(1024, ["stall=0.5", "spares=3", "shrinks=false"])
    assert (scenario.stall, scenario.spares, scenario.shrinks) == (0.5, 3, False)
