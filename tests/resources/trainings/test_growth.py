"""Growth: a training takes more nodes just after a checkpoint, where that pays back, and not again and again."""

from pathlib import Path

import pytest

from slipway.resources.fleet.protocol import Node
from slipway.resources.trainings.growth import (
    COOL_DOWN_SECONDS,
    LONGEST_LOOK_SECONDS,
    RESTART_SECONDS,
    STEADY_SECONDS,
    GrowthWatch,
    Pace,
    Prospect,
    is_due,
    pays,
)
from slipway.trainer.record.fence import Token
from tests.resources.trainings.clock import Clock

pytestmark = pytest.mark.pure

PLATFORM, TRAINING, FIRST = Path("/durable"), Path("/durable/trainings/tiny"), Token(1)
PACE = Pace(seconds=1000.0, seconds_per_step=1.0, is_saved=True, restart_seconds=10.0)
PROSPECT = Prospect(nodes_now=1, nodes_then=2, steps_left=1000, steps_unsaved=0, growths_before=0)


@pytest.fixture
def watch(clock: Clock) -> GrowthWatch:
    return GrowthWatch(clock)


def prospect(**changes: object) -> Prospect:
    return Prospect(**{**vars(PROSPECT), **changes})


def pace(**changes: object) -> Pace:
    return Pace(**{**vars(PACE), **changes})


def test_a_growth_is_due_right_after_a_checkpoint():
    assert is_due(PROSPECT, PACE)
    assert not is_due(PROSPECT, pace(is_saved=False))


@pytest.mark.parametrize(("steps_left", "expected"), [(39, False), (40, True)])
def test_it_saves_twice_what_the_restart_costs(steps_left: int, expected: bool):
    assert pays(prospect(steps_left=steps_left), PACE) is expected


def test_steps_that_are_done_again_are_part_of_its_cost():
    assert pays(prospect(steps_left=40, steps_unsaved=0), PACE)
    assert not pays(prospect(steps_left=40, steps_unsaved=1), PACE)


def test_a_script_is_taken_to_go_on_for_as_long_as_it_was_watched():
    assert pays(prospect(steps_left=None), pace(seconds=40.0))
    assert not pays(prospect(steps_left=None), pace(seconds=39.0))


def test_nothing_is_known_to_pay_before_two_steps_were_seen():
    assert not pays(PROSPECT, pace(seconds_per_step=None))


@pytest.mark.parametrize("growths", [0, 1, 3])
def test_each_growth_doubles_the_wait_for_the_next(growths: int):
    seconds = COOL_DOWN_SECONDS * 2**growths
    assert is_due(prospect(growths_before=growths), pace(seconds=seconds))
    assert not is_due(prospect(growths_before=growths), pace(seconds=seconds - 1))


def test_a_node_that_comes_and_goes_is_not_taken(watch: GrowthWatch, clock: Clock):
    up, down = [Node("node-1", ready=True)], [Node("node-1", ready=False)]
    assert not watch.steady(PLATFORM, up)
    clock.now += STEADY_SECONDS - 1
    watch.steady(PLATFORM, down)
    clock.now += 1
    assert not watch.steady(PLATFORM, up)
    clock.now += STEADY_SECONDS
    assert watch.steady(PLATFORM, up) == {"node-1"}


def test_what_nobody_watched_does_not_count_for_a_node(watch: GrowthWatch, clock: Clock):
    watch.steady(PLATFORM, [Node("node-1", ready=True)])
    clock.now += LONGEST_LOOK_SECONDS + 1
    assert not watch.steady(PLATFORM, [Node("node-1", ready=True)])


def test_the_pace_is_what_the_reader_saw(watch: GrowthWatch, clock: Clock):
    assert watch.look(TRAINING, FIRST, None, "", begun=False) == Pace(0.0, None, False, RESTART_SECONDS)
    clock.now += 7
    assert watch.look(TRAINING, FIRST, 100, "") == Pace(0.0, None, False, 7.0)
    clock.now += 10
    assert watch.look(TRAINING, FIRST, 120, "a") == Pace(10.0, 0.5, True, 7.0)
    clock.now += 10
    assert watch.look(TRAINING, FIRST, None, "a") == Pace(20.0, 0.5, False, 7.0)


def test_a_checkpoint_that_was_there_before_the_first_look_is_not_new(watch: GrowthWatch):
    assert not watch.look(TRAINING, FIRST, 100, "a").is_saved
    assert watch.look(TRAINING, Token(2), 100, "b").seconds_per_step is None
