"""Workers of this machine: what is told when one of them is ended."""

import signal

import pytest

from assets.datasets.building import workers
from assets.datasets.building.dask_cluster import LostWorkers
from resources import told


def test_a_process_that_is_ended_ends_the_build_with_a_sentence_for_a_person():
    with pytest.raises(LostWorkers, match="lack of memory: give the build more") as error:
        list(workers.run(signal.raise_signal, [signal.SIGKILL] * 2, workers.WORTH_A_PROCESS, workers=2))
    assert told.is_for_people(error.value)
