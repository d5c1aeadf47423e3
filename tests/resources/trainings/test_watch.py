"""The watch over progress: ages are the reader's own, whatever other machines' clocks say."""

from pathlib import Path

import pytest

from slipway.resources.trainings.watch import LONGEST_LOOK, ProgressWatch
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Beat
from tests.resources.trainings.clock import Clock

pytestmark = pytest.mark.pure

STORE, FIRST = Path("/trainings/tiny"), Token(1)


@pytest.fixture
def watch(clock: Clock) -> ProgressWatch:
    return ProgressWatch(clock)


def beat(step: int, done: int = 0, at: float = 0.0, rank: int = 0) -> Beat:
    return Beat(rank, "training", step, at, at, done)


def age(watch: ProgressWatch, *beats: Beat, token: Token = FIRST) -> float:
    return min(sight.age for sight in watch.look(STORE, token, beats))


def test_an_age_begins_when_a_place_is_first_seen(watch: ProgressWatch, clock: Clock):
    assert age(watch, beat(5)) == 0.0
    clock.now += 20
    assert age(watch, beat(5)) == 20.0


@pytest.mark.parametrize("skew", [-3600.0, 0.0, 3600.0])
def test_the_clock_of_the_node_does_not_matter(watch: ProgressWatch, clock: Clock, skew: float):
    for passed in (0, 10, 20):
        clock.now = 5000.0 + passed
        sight_age = age(watch, beat(5, at=clock.now + skew))
    assert sight_age == 20.0


def test_a_step_and_work_inside_a_phase_are_progress(watch: ProgressWatch, clock: Clock):
    age(watch, beat(5, done=10))
    clock.now += 20
    assert age(watch, beat(5, done=11)) == 0.0
    clock.now += 20
    assert age(watch, beat(6, done=11)) == 0.0


def test_before_a_first_heartbeat_the_age_is_that_of_the_first_look(watch: ProgressWatch, clock: Clock):
    assert age(watch) == 0.0
    clock.now += 20
    assert age(watch) == 20.0
    assert age(watch, beat(0)) == 0.0


def test_what_a_reader_did_not_watch_does_not_count(watch: ProgressWatch, clock: Clock):
    """It stood still on the same frozen store as the ranks."""
    age(watch, beat(5))
    clock.now += 600
    assert age(watch, beat(5)) == LONGEST_LOOK


def test_a_restart_of_the_reader_only_prolongs(watch: ProgressWatch, clock: Clock):
    age(watch, beat(5))
    clock.now += 50
    assert age(watch, beat(5)) == 50.0
    assert age(ProgressWatch(clock), beat(5)) == 0.0


def test_each_generation_begins_anew(watch: ProgressWatch, clock: Clock):
    age(watch, beat(5))
    clock.now += 50
    assert age(watch, beat(5), token=Token(1, 1)) == 0.0


def test_after_a_restart_of_the_count_the_age_begins_anew(watch: ProgressWatch, clock: Clock):
    age(watch, beat(5))
    clock.now += 50
    watch.restart(STORE, FIRST)
    assert age(watch, beat(5)) == 0.0


def test_nobody_looks_while_no_rank_can_be_late_and_then_somebody_does(watch: ProgressWatch, clock: Clock):
    assert not watch.rests(STORE, FIRST)
    age(watch, beat(5))
    watch.rest(STORE, FIRST, 12.0)
    clock.now += 11.9
    assert watch.rests(STORE, FIRST) and not watch.rests(STORE, Token(2))
    clock.now += 0.2
    assert not watch.rests(STORE, FIRST)
    assert age(watch, beat(5)) == pytest.approx(12.1)


def test_a_rest_is_never_so_long_that_time_is_not_counted(watch: ProgressWatch, clock: Clock):
    age(watch, beat(5))
    watch.rest(STORE, FIRST, 1e9)
    clock.now += LONGEST_LOOK
    assert not watch.rests(STORE, FIRST)
    assert age(watch, beat(5)) == LONGEST_LOOK


def test_a_process_whose_heartbeat_does_not_change_is_silent_and_one_that_only_stays_at_its_place_is_not(
    watch: ProgressWatch, clock: Clock
):
    watch.look(STORE, FIRST, [beat(5, at=1.0), beat(5, at=1.0, rank=1)])
    clock.now += 8
    sights = watch.look(STORE, FIRST, [beat(5, at=9.0), beat(5, at=1.0, rank=1)])
    assert [(sight.age, sight.silent) for sight in sights] == [(8.0, 0.0), (8.0, 8.0)]


def test_a_rank_is_held_against_its_steps_in_a_step_and_against_its_validations_in_a_validation(watch: ProgressWatch):
    def longest(phase: str) -> float:
        [sight] = watch.look(STORE, FIRST, [Beat(0, phase, 5, 0.0, 0.0, longest=0.2, validated=7.0)])
        return sight.longest

    assert (longest("training"), longest("validating")) == (0.2, 7.0)
