"""Servers that are away: a training does not notice, and what it could not deliver arrives afterwards.

Chaos finds who serves an object store. Dagster away for a whole run is in `tests/drills/test_lost_control_plane.py`.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.operations.chaos import processes
from slipway.resources.errors import Unavailable
from slipway.resources.mlflow.tracking import Delivery, Tracking
from slipway.resources.trainings.checkpoints import deliver_copy, pending_copy
from slipway.trainer.checkpoint.tiers import replicas
from slipway.trainer.checkpoint.tiers.copying import tier_at
from slipway.trainer.record import incidents
from tests.conftest import Marked, until
from tests.drills.instance import free_port
from tests.operations.chaos.stand import Stand
from tests.s3 import point_at, served

SERVES = """
import socket, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(60)
"""


@pytest.fixture
def listener() -> Iterator[tuple[int, int]]:
    """The pid and the port of a process that listens."""
    with subprocess.Popen([sys.executable, "-c", SERVES], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())
        process.kill()


def test_who_listens_at_a_url_is_found_and_nobody_for_another_machine(listener: tuple[int, int]) -> None:
    pid, port = listener
    assert (
        processes.listeners_at(f"http://127.0.0.1:{port}")
        == processes.listeners_at(f"http://localhost:{port}/a-bucket")
        == [pid]
    )
    assert processes.listeners_at(f"http://192.0.2.1:{port}") == []  # an address that nobody has (RFC 5737)
    assert processes.listeners_at("") == processes.listeners_at("not a url") == []


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_training_does_not_notice_that_its_object_store_stands_still_and_delivers_afterwards(
    tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s3").mkdir()
    with served(tmp_path / "s3") as server:
        point_at(server, monkeypatch)
        stand = Stand(tmp_path / "platform", backup=f"{server.new_bucket()}/backup")
        with stand.ticking():
            until(lambda: newest(stand), "a checkpoint on the backup", 300.0)
            [result] = stand.bring("object-store-away").results
            assert result.right and "stands still" in result.injection.what, result.incident
            before = newest(stand)
            stand.goes_on()
            until(lambda: newest(stand) > before, "a newer checkpoint on the backup", 300.0)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_an_object_store_that_is_away_for_the_whole_run_stops_nothing_and_has_the_last_checkpoint_afterwards(
    tmp_path: Path, marked: Marked, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s3").mkdir()
    with served(tmp_path / "s3") as server:
        point_at(server, monkeypatch)
        backup = f"{server.new_bucket()}/backup"
        server.kill()
        stand = Stand(tmp_path / "platform", backup=backup)
        with stand.ticking():
            stand.goes_on()
            until(lambda: replicas.noted_faults(stand.store.folder), "a copy that the backup did not take", 300.0)
        server.start()
        facts = stand.store.read()
        last = pending_copy(facts)
        assert last is not None and last.step == max(commit.step for commit in facts.commits)
        assert newest(stand) == 0 and incidents.names(stand.store.folder) == []
        deliver_copy(stand.store.folder, last, stand.home.durable, tier_at(backup))
        assert newest(stand) == last.step and pending_copy(stand.store.read()) is None


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_mlflow_that_is_away_for_the_whole_run_stops_nothing_and_has_each_step_once_afterwards(
    tmp_path: Path, marked: Marked, database: Path
) -> None:
    server = MlflowServer(tmp_path, database)
    tracking, stand = Tracking(uri=server.uri), Stand(tmp_path / "platform")
    with stand.ticking():
        reached = stand.goes_on()
        with pytest.raises(Exception, match=r"Max retries exceeded|Connection refused"):
            tracking.ship(stand.store, "tiny", {})
        assert stand.goes_on() > reached
    assert tracking.run_of(stand.store) == "" and incidents.names(stand.store.folder) == []
    with server.running():
        until(lambda: delivered(tracking, stand) is Delivery.COMPLETE, "MLflow to have it all", 300.0)
        tracking.ship(stand.store, "tiny", {})
        run = tracking.client().get_run(tracking.run_of(stand.store))
        losses = tracking.client().get_metric_history(run.info.run_id, "loss")
    assert sorted(metric.step for metric in losses) == list(range(1, stand.step + 1))
    assert run.info.status == "KILLED", "it was stopped in the end"


def delivered(tracking: Tracking, stand: Stand) -> Delivery | None:
    """How far the delivery has come; None while the server is asked no more for a moment, as it was silent."""
    with contextlib.suppress(Unavailable):
        return tracking.ship(stand.store, "tiny", {})
    return None


class MlflowServer:
    """MLflow's own server on a port that nobody listens at before it is started."""

    def __init__(self, folder: Path, database: Path) -> None:
        self._folder, self._port = folder, free_port()
        shutil.copyfile(database, folder / "mlflow.db")
        self.uri = f"http://127.0.0.1:{self._port}"

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self._port)]
        stores = [f"--backend-store-uri=sqlite:///{self._folder}/mlflow.db"]
        stores += [f"--artifacts-destination={self._folder / 'artifacts'}", "--workers=1"]
        process = subprocess.Popen([*command, *stores], start_new_session=True)
        try:
            until(self._answers, "MLflow's server to answer", 300.0)
            yield
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
            return True
        return False


def newest(stand: Stand) -> int:
    """The step of the newest checkpoint that the backup has; 0 without one."""
    commits = stand.store.commits()
    holders = replicas.holders(stand.store.folder, commits)
    return max((commit.step for commit in commits if "backup" in holders[commit.name]), default=0)
