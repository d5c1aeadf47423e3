"""A disk that does not answer while checkpoints are written: it is named, and the training goes on."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipway.trainer.record import causes, incidents
from tests.conftest import until
from tests.disks import freezable, frozen
from tests.trainer.conftest import Training, wait


@pytest.mark.slow
def test_a_disk_that_stands_still_is_reported_once_and_saves_go_on_when_it_answers(tmp_path: Path, mark: str) -> None:
    with freezable(tmp_path / "durable", 64):
        training = Training(tmp_path, mark)
        training.configure(run={"steps": 1_000_000}, checkpoint={"every": 20}, validation={"every": 0})
        process = training.start()
        ended = ThreadPoolExecutor(1).submit(wait, process)  # reads what it prints, which would stop it else
        until(training.commits, "the first checkpoint")
        with frozen(tmp_path / "durable"):
            [id] = until(lambda: incidents.names(training.store), "the incident")
            before = len(training.commits())
        incident = incidents.read(training.store, id)
        assert (incident.kind, incident.survived) == (causes.STORAGE, True), incident
        assert "could not be saved: the two checkpoints before it are still being written" in incident.reason
        until(lambda: len(training.commits()) > before + 1, "checkpoints after it")
        process.terminate()
        assert ended.result().code == 0
        assert incidents.names(training.store) == [id]
