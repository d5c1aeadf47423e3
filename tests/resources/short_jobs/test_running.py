"""Short jobs: submitted or adopted by what they are about; a result lasts, and a failure names the job's log."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipway.resources.fleet.embedded import EmbeddedFleet, mark_lost
from slipway.resources.launchers.protocol import JobState
from slipway.resources.short_jobs import attempts
from slipway.resources.short_jobs.running import ShortJobFailed
from slipway.trainer.record import job_result
from tests.conftest import Marked, until
from tests.resources.short_jobs.waiter import jobs, short_job


@pytest.fixture(autouse=True)
def every_process_is_marked(marked: Marked) -> None:
    """Each test starts processes."""


def starts(root: Path) -> int:
    return len((root / "starts").read_text().splitlines()) if (root / "starts").exists() else 0


def test_a_job_whose_waiting_process_was_killed_is_adopted_and_runs_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.resources.short_jobs.waiter", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ)) as waiter:
        until(lambda: starts(tmp_path) == 1, "the job to run")
        waiter.kill()
    (tmp_path / "go").touch()
    messages: list[str] = []
    assert jobs(tmp_path).run(short_job(tmp_path), messages.append) == {"found": 42}
    assert starts(tmp_path) == 1
    assert jobs(tmp_path).launcher.poll(f"{short_job(tmp_path).name}-1").state is JobState.MISSING, "it was released"
    assert jobs(tmp_path).run(short_job(tmp_path, says="it is not started again"), messages.append) == {"found": 42}


def test_a_failure_names_the_log_and_whoever_asks_again_makes_a_new_attempt(tmp_path: Path) -> None:
    with pytest.raises(ShortJobFailed) as failed:
        jobs(tmp_path).run(short_job(tmp_path, says="evaluate: no such snapshot"), lambda _: None)
    log = tmp_path / "durable" / attempts.FOLDER / short_job(tmp_path).name / "000001" / attempts.LOGS
    message = str(failed.value)
    assert message.startswith(
        f"evaluate of a checkpoint: job {short_job(tmp_path).name}-1: node-0 ended with exit code 1"
    )
    assert message.endswith(f"evaluate: no such snapshot; its log: {log}")
    assert "evaluate: no such snapshot" in (log / "node-0.txt").read_text()
    (tmp_path / "go").touch()
    assert jobs(tmp_path).run(short_job(tmp_path), lambda _: None) == {"found": 42}
    assert starts(tmp_path) == 2


def test_a_job_waits_for_a_node_and_says_so(tmp_path: Path) -> None:
    running = jobs(tmp_path)
    fleet = running.fleet
    assert isinstance(fleet, EmbeddedFleet)
    for node in ("node-0", "node-1"):
        mark_lost(tmp_path / "nodes", node, "a test")
    messages: list[str] = []

    def say(line: str) -> None:
        messages.append(line)
        (tmp_path / "go").touch()
        for node in ("node-0", "node-1"):
            fleet.restore(node)

    assert running.run(short_job(tmp_path), say) == {"found": 42}
    assert messages[0].startswith("a checkpoint waits: found 0 of the fleet's 2 nodes ready")


def test_a_damaged_outcome_counts_as_a_failed_attempt(tmp_path: Path) -> None:
    attempt = attempts.newest(tmp_path, short_job(tmp_path))
    attempt.fail("once")
    path = attempt.path / attempts.OUTCOME
    path.write_bytes(path.read_bytes().replace(b"once", b"0nce"))
    assert attempts.newest(tmp_path, short_job(tmp_path)).number == 2


def test_the_first_outcome_of_an_attempt_holds(tmp_path: Path) -> None:
    attempt = attempts.newest(tmp_path, short_job(tmp_path))
    attempt.fail("it was given up")
    job_result.succeed(attempt.path / attempts.OUTCOME, {"found": 42})
    outcome = attempt.outcome()
    assert outcome is not None and (outcome.failure, outcome.result) == ("it was given up", {})


def test_all_who_want_a_job_submit_the_one_that_was_first_on_record(tmp_path: Path) -> None:
    attempt = attempts.newest(tmp_path, short_job(tmp_path))
    first = attempt.claim(short_job(tmp_path), ("node-0",), 1)
    assert attempt.claim(short_job(tmp_path, says="another"), ("node-1",), 1) == first


def test_what_ended_long_ago_is_removed_with_its_jobs_and_what_runs_stays(tmp_path: Path) -> None:
    ended = attempts.newest(tmp_path, short_job(tmp_path))
    ended.claim(short_job(tmp_path), ("node-0",), 1)
    ended.fail("long ago")
    released: list[str] = []

    def release(name: str) -> bool:
        released.append(name)
        return True

    running = ended.next()
    running.claim(short_job(tmp_path), ("node-0",), 1)
    attempts.remove_old(tmp_path, time.time() + 60, release)
    assert ended.path.is_dir() and released == []
    running.fail("now")
    attempts.remove_old(tmp_path, time.time() - 60, release)
    assert ended.path.is_dir() and released == []
    attempts.remove_old(tmp_path, time.time() + 60, release)
    assert not ended.folder.exists() and sorted(released) == [ended.job_name, running.job_name]
