"""Reading for a scrape: what is open is read, what is over is not read again, and one that is damaged stands alone."""

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from slipway.operations.metrics.platform import SweepsReader
from slipway.operations.metrics.serve import PlatformExporter, PlatformSources
from slipway.operations.metrics.trainings import TrainingsReader
from slipway.resources.errors import Unavailable
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue
from slipway.trainer.base import exporting, journal
from slipway.trainer.metrics.exporter import JobExporter
from slipway.trainer.record.fence import Token
from slipway.trainer.record.heartbeat import Heartbeat
from tests.cli import homes


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def reader(root: Path, clock: Clock | None = None) -> tuple[TrainingsReader, Trainings]:
    trainings = Trainings(homes.home(root).durable / "trainings")
    return TrainingsReader(trainings, clock or Clock()), trainings


def closed(trainings: Trainings, store: TrainingStore) -> None:
    for duty in WorkQueue:
        trainings.close(store.id, duty)


def test_a_training_that_is_over_is_read_once_more_and_then_never_again(tmp_path: Path) -> None:
    over = homes.ended(homes.home(tmp_path), "over", "succeeded", "done", 10)
    homes.running(homes.home(tmp_path), "tiny", 10)
    reading, trainings = reader(tmp_path)
    readings, read = reading.read()
    assert ({reading_of_training.state for reading_of_training in readings}, read) == ({"succeeded", "running"}, 2)
    closed(trainings, over)
    assert [reading.read()[1] for _ in range(2)] == [2, 1]


def test_a_damaged_training_stands_alone(tmp_path: Path) -> None:
    store = homes.running(homes.home(tmp_path), "tiny", 10)
    homes.offered(homes.home(tmp_path), "offered")
    for copy in store.folder.rglob("specification*"):
        copy.write_bytes(b"{")
    readings, _ = reader(tmp_path)[0].read()
    assert sorted(reading_of_training.state for reading_of_training in readings) == ["offered", "unreadable"]


def test_a_running_training_says_where_it_is_and_how_long_it_stands_still(tmp_path: Path) -> None:
    store, clock = homes.running(homes.home(tmp_path), "tiny", 10, 20), Clock()
    beat = Heartbeat(store.folder, Token(1), 0)
    beat.beat("training", 21)
    reading, _ = reader(tmp_path, clock)
    reading.read()
    clock.now += 40
    ((one,), _) = reading.read()
    assert (one.still, one.step, one.steps, one.nodes) == (40.0, 21, homes.STEPS, 2)
    assert (one.checkpoints, one.checkpoint_step) == ({"durable": 2}, 20)
    beat.beat("validating", 21)
    ((one,), _) = reading.read()
    assert one.still == 0.0


def test_a_training_before_its_first_heartbeat_waits(tmp_path: Path) -> None:
    homes.running(homes.home(tmp_path), "tiny")
    ((one,), _) = reader(tmp_path)[0].read()
    assert one.waiting is not None and one.still is None


def test_there_may_be_no_sweeps_at_all(tmp_path: Path) -> None:
    assert SweepsReader(tmp_path / "sweeps").read() == []


def test_a_job_reads_of_its_ledger_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = homes.running(homes.home(tmp_path), "tiny", 10)
    exporter = JobExporter(store.folder, 1, None)
    assert f'slipway_job_step{{training="{store.id}"}} 10.0' in exporter.text()
    offsets, read = [], journal.read

    def noted(path: Path, offset: int = 0, at_most: int = -1) -> journal.JournalReading:
        offsets.append(offset)
        return read(path, offset, at_most)

    monkeypatch.setattr("slipway.trainer.base.journal.read", noted)
    assert f'slipway_job_step_seconds_count{{training="{store.id}"}} 1.0' in exporter.text()
    assert offsets and 0 not in offsets


def test_only_the_node_of_rank_0_exports_the_figures_of_the_whole_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = homes.running(homes.home(tmp_path), "tiny", 10)
    for rank, node in enumerate(homes.NODES):
        monkeypatch.setenv("SLIPWAY_NODE", node)
        Heartbeat(store.folder, Token(1), rank).beat("training", 11)
    first, second = (JobExporter(store.folder, 1, node).text() for node in homes.NODES)
    assert "slipway_job_loss{" in first and "slipway_job_loss{" not in second
    assert 'node="node-1",rank="1"' in second and 'rank="0"' not in second


def test_what_the_last_scrape_could_not_read_is_a_problem_of_the_exporter(tmp_path: Path) -> None:
    def away() -> NoReturn:
        raise Unavailable("the fleet does not answer")

    exporter = PlatformExporter(PlatformSources(tmp_path, {}, away, away), None, jobs=False)
    exporter.text()
    with serving(exporter.text, exporter.problems) as url:
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(f"{url}/health")
        assert failed.value.code == 503
        assert json.load(failed.value) == {"problems": {"fleet": "the last scrape could not read it"}}
        assert json.load(urllib.request.urlopen(f"{url}/live")) == {"live": True}


def test_the_server_answers_metrics_and_health_and_survives_an_error(tmp_path: Path) -> None:
    texts = iter(["a 1\n"])
    with serving(lambda: next(texts)) as url:
        assert urllib.request.urlopen(f"{url}/metrics").read() == b"a 1\n"
        for path, code in (("metrics", 500), ("other", 404)):
            with pytest.raises(urllib.error.HTTPError) as failed:
                urllib.request.urlopen(f"{url}/{path}")
            assert failed.value.code == code
        assert json.load(urllib.request.urlopen(f"{url}/live")) == {"live": True}
        assert json.load(urllib.request.urlopen(f"{url}/health")) == {"problems": {}}


@contextlib.contextmanager
def serving(text: Callable[[], str], problems: Callable[[], Mapping[str, str]] = dict) -> Iterator[str]:
    """The address of an exporter."""
    server = exporting.server("127.0.0.1", 0, text, problems)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
