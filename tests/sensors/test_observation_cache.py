"""What a sensor remembers: of each training it looks again after a while, and of few of them at a time."""

from slipway.sensors.support.observation_cache import LASTS_SECONDS, SensorMemory

TICK_SECONDS = 2.0


def test_each_of_many_trainings_is_looked_at_again_once_and_few_of_them_in_one_tick():
    now, sensor, ids = 1000.0, SensorMemory(clock=lambda: now), [f"tiny-{number}" for number in range(1000)]

    def looked_at() -> int:
        """How many trainings a tick looks at, in all of which it finds nothing to do."""
        loud = [id for id in ids if not sensor.is_quiet(id, ())]
        for id in loud:
            sensor.found_nothing(id)
        return len(loud)

    assert looked_at() == 1000
    ticks = []
    for _ in range(int(LASTS_SECONDS / TICK_SECONDS)):
        now += TICK_SECONDS
        ticks.append(looked_at())
    assert sum(ticks) == 1000 and max(ticks) < 100


def test_what_is_kept_of_a_training_is_forgotten_when_its_time_has_come():
    now, sensor = 1000.0, SensorMemory(clock=lambda: now)
    sensor.is_quiet("tiny-1", ())
    sensor.of("tiny-1", "kept")
    sensor.lasting_of("tiny-1", "lasting")
    now += LASTS_SECONDS
    assert not sensor.is_quiet("tiny-1", ())
    assert sensor.of("tiny-1", "anew") == "anew" and sensor.lasting_of("tiny-1", "anew") == "lasting"
