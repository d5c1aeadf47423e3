"""An object store that stands still: chaos finds who serves it, and a training whose backup it has does not notice."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from operations.chaos import listeners
from resources.trainings import late_copies
from tests.conftest import Marked, until
from tests.operations.chaos.stand import Stand
from tests.s3 import point_at, served
from trainer.checkpoint.tiers import faults, replicas
from trainer.checkpoint.tiers.copying import tier_at
from trainer.record import incidents

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
    assert listeners.of(f"http://127.0.0.1:{port}") == listeners.of(f"http://localhost:{port}/a-bucket") == [pid]
    assert listeners.of(f"http://192.0.2.1:{port}") == []  # an address that nobody has (RFC 5737)
    assert listeners.of("") == listeners.of("not a url") == []


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
            until(lambda: faults.noted(stand.store.folder), "a copy that the backup did not take", 300.0)
        server.start()
        facts = stand.store.read()
        last = late_copies.owed(facts)
        assert last is not None and last.step == max(commit.step for commit in facts.commits)
        assert newest(stand) == 0 and incidents.names(stand.store.folder) == []
        late_copies.deliver(stand.store.folder, last, stand.home.durable, tier_at(backup))
        assert newest(stand) == last.step and late_copies.owed(stand.store.read()) is None


def newest(stand: Stand) -> int:
    """The step of the newest checkpoint that the backup has; 0 without one."""
    commits = stand.store.commits()
    held = replicas.holders(stand.store.folder, commits)
    return max((commit.step for commit in commits if "backup" in held[commit.name]), default=0)
