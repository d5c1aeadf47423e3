"""Workers of this machine: the message when one of them is ended."""

import signal
from collections.abc import Iterator

import pytest

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.building.dask_cluster import LostWorkers, _Begun
from slipway.resources import errors


def test_a_process_that_is_ended_ends_the_build_with_a_sentence_for_a_person():
    with pytest.raises(LostWorkers, match="lack of memory: give the build more") as error:
        list(workers.run(signal.raise_signal, [signal.SIGKILL] * 2, workers.WORTH_A_PROCESS, workers=2))
    assert errors.is_for_people(error.value)


def test_tasks_are_taken_as_there_are_workers_for_them_and_results_come_in_their_order(monkeypatch):
    monkeypatch.setattr(workers, "AHEAD", 2)
    taken, ahead = 0, 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(40):
            taken += 1
            yield -number

    for done, result in enumerate(workers.run(abs, tasks(), workers.WORTH_A_PROCESS, workers=2), 1):
        assert result == done - 1
        ahead = max(ahead, taken - done)
    assert (taken, done) == (40, 40)
    assert ahead <= 2 * workers.AHEAD


@pytest.mark.parametrize("tasks", [[], [3]])
def test_less_than_two_tasks_start_no_process(monkeypatch, tasks):
    monkeypatch.setattr("loky.ProcessPoolExecutor", None)
    assert list(workers.run(str, iter(tasks), workers.WORTH_A_PROCESS, workers=2)) == list(map(str, tasks))


def test_a_cluster_keeps_the_tasks_that_have_no_result_yet():
    taken = list[int]()

    def tasks() -> Iterator[int]:
        for number in range(5):
            taken.append(number)
            yield number

    begun = _Begun(tasks())
    assert [begun.at(position) for position in (0, 1, 2)] == [(0,), (1,), (2,)]
    begun.first_is_done()
    begun.first_is_done()
    assert taken == [0, 1, 2]  # and no more
    assert [begun.at(position) for position in (0, 1, 2, 3)] == [(2,), (3,), (4,), ()]
