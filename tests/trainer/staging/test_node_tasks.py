"""Node tasks: what is done on nodes comes to the same in this process and by a job on each node.

By jobs, whoever comes next finds what is under way; what ended while nobody looked is begun anew.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.fleet.protocol import Node
from slipway.resources.launchers.local.launcher import LocalLauncher
from slipway.resources.node_tasks.by_jobs import ByJobs, remove_outcomes
from slipway.resources.node_tasks.in_process import InProcess
from slipway.resources.node_tasks.protocol import TaskOutcome
from slipway.trainer.base.paths import CODE
from slipway.trainer.data import shards
from slipway.trainer.node_task import DiscardTask, MeasureTask, RetainTask, StageTask, Task
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Exit, Token
from slipway.trainer.staging.stage import is_staged
from tests.conftest import PATIENCE_SECONDS, Marked, until
from tests.trainer.staging.folders import assert_whole, half_a_shard, is_in_mid_copy

NODES = ("node-0", "node-1")


class ObservedFleet:
    """A fleet that knows whether anybody has asked it."""

    def __init__(self, fleet: EmbeddedFleet) -> None:
        self.fleet, self.scheduled = fleet, fleet.scheduled
        self.was_asked = threading.Event()

    def nodes(self) -> list[Node]:
        self.was_asked.set()
        return self.fleet.nodes()


class StagingSite:
    """Two nodes, a launcher for them, and a snapshot to stage."""

    def __init__(self, root: Path, durable: Path, snapshot: shards.TextSnapshot) -> None:
        self.root, self.durable, self.snapshot = root, durable, snapshot
        self.fleet = EmbeddedFleet(root / "nodes", NODES, reboot_seconds=60)
        self.launcher = LocalLauncher(root / "jobs", CODE, self.fleet)

    def by_jobs(self, fleet: ObservedFleet | None = None) -> ByJobs:
        return ByJobs(self.launcher, fleet or self.fleet, self.durable / "node-tasks", poll_seconds=0.05)

    def nvme(self, node: str) -> Path:
        return self.root / "nodes" / node / "nvme"

    def stage(self, node: str, snapshot: str = "") -> StageTask:
        return StageTask(snapshot or self.snapshot.sha256, [str(self.durable)], str(self.nvme(node)))

    def attempts(self) -> list[str]:
        """The outcomes that were left."""
        return sorted(path.name for path in (self.durable / "node-tasks").glob("*/*.json"))


@pytest.fixture
def staging_site(tmp_path: Path, durable: Path, snapshot: shards.TextSnapshot, marked: Marked) -> StagingSite:
    return StagingSite(tmp_path, durable, snapshot)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def run(
    tasks: InProcess | ByJobs, node_tasks: Mapping[str, Task], messages: list[str] | None = None
) -> dict[str, TaskOutcome]:
    return tasks.run(node_tasks, (messages if messages is not None else []).append)


def test_in_one_process_each_node_does_its_own_task_though_another_fails(staging_site: StagingSite):
    tasks = {"node-0": staging_site.stage("node-0", "f" * 64), "node-1": staging_site.stage("node-1")}
    done = run(InProcess(), tasks)
    assert "there is no such snapshot" in done["node-0"].failure
    assert done["node-1"].result["shards"] == 4 and is_staged(staging_site.snapshot.sha256, staging_site.nvme("node-1"))


def test_by_jobs_each_node_does_its_own_task_though_another_fails(staging_site: StagingSite, marked: Marked):
    tasks = {"node-0": staging_site.stage("node-0", "f" * 64), "node-1": staging_site.stage("node-1")}
    done = run(staging_site.by_jobs(), tasks)
    assert "there is no such snapshot" in done["node-0"].failure
    expected = run(InProcess(), {"node-1": staging_site.stage("node-1")})["node-1"].result
    assert done["node-1"].result.keys() == expected.keys() and done["node-1"].result["copied_shards"] == 4
    assert_whole(staging_site.snapshot, staging_site.nvme("node-1"))
    assert list(staging_site.launcher.folder.iterdir()) == [], "the jobs are released"


def staging_in_its_middle(site: StagingSite, threads: ThreadPoolExecutor) -> "Future[dict[str, TaskOutcome]]":
    """Somebody waits for a staging on node-0, which waits for the rest of a shard."""
    waiting = threads.submit(run, site.by_jobs(), {"node-0": site.stage("node-0")})
    until(lambda: is_in_mid_copy(site.nvme("node-0")), "a copy to begin")
    return waiting


def test_a_run_adopts_a_task_that_is_under_way(staging_site: StagingSite, threads: ThreadPoolExecutor):
    source, fleet = (
        shards.shard_path(staging_site.durable, staging_site.snapshot.shards()[1]),
        ObservedFleet(staging_site.fleet),
    )
    with half_a_shard(source) as rest:
        first = staging_in_its_middle(staging_site, threads)
        second = threads.submit(run, staging_site.by_jobs(fleet), {"node-0": staging_site.stage("node-0")})
        until(fleet.was_asked.is_set, "the second to ask after it")
        with open(source, "wb", buffering=0) as pipe:
            pipe.write(rest)
    assert first.result(PATIENCE_SECONDS) == second.result(PATIENCE_SECONDS)
    assert staging_site.attempts() == ["000001.json"]


def test_a_stopped_task_reports_that_and_the_next_run_begins_it_anew(
    staging_site: StagingSite, threads: ThreadPoolExecutor
):
    tasks = {"node-0": staging_site.stage("node-0")}
    with half_a_shard(shards.shard_path(staging_site.durable, staging_site.snapshot.shards()[1])):
        waiting = staging_in_its_middle(staging_site, threads)
        staging_site.by_jobs().stop(tasks)
        assert waiting.result(PATIENCE_SECONDS)["node-0"].failure == "it was stopped"
    assert run(staging_site.by_jobs(), tasks)["node-0"].result["copied_shards"] == 1
    assert staging_site.attempts() == ["000001.json", "000002.json"]


def test_the_task_of_a_lost_node_fails(staging_site: StagingSite, threads: ThreadPoolExecutor):
    with half_a_shard(shards.shard_path(staging_site.durable, staging_site.snapshot.shards()[1])):
        waiting = staging_in_its_middle(staging_site, threads)
        staging_site.fleet.mark_lost("node-0", "its power is off")
        assert waiting.result(PATIENCE_SECONDS)["node-0"].failure == "node node-0 is lost: its power is off"


def test_a_node_that_does_not_exist_is_reported_at_once(staging_site: StagingSite):
    done = run(staging_site.by_jobs(), {"node-9": staging_site.stage("node-9")})
    assert "node-9" in done["node-9"].failure and not done["node-9"].result


def test_a_task_that_ended_unobserved_is_begun_anew(staging_site: StagingSite):
    task = MeasureTask(str(staging_site.nvme("node-0")))
    tasks = staging_site.by_jobs()
    attempt = tasks._begin("node-0", task)
    until(attempt.outcome.exists, "the job to leave its outcome")
    assert run(tasks, {"node-0": task})["node-0"].result == {"sample": None}
    assert staging_site.attempts() == ["000001.json", "000002.json"]


def test_old_outcomes_are_forgotten_and_young_ones_stay(staging_site: StagingSite):
    old, young = (
        staging_site.durable / "node-tasks" / name / "000001.json" for name in ("measure-node-0-1", "stage-node-0-2")
    )
    for outcome in (old, young):
        outcome.parent.mkdir(parents=True)
        outcome.write_text("{}")
    os.utime(old, (1, 1))
    remove_outcomes(staging_site.durable, before=time.time() - 60)
    assert staging_site.attempts() == ["000001.json"] and young.exists() and not old.parent.exists()


def test_the_other_tasks_do_what_they_say(staging_site: StagingSite):
    nvme = staging_site.nvme("node-0")
    stores = [staging_site.durable / "trainings" / name for name in ("over", "runs", "elsewhere", "unknown")]
    for store in stores[:3]:
        (nvme / "checkpoints" / store.name).mkdir(parents=True)
        fence.claim(store, Token(1), nodes=(), cause="a test", by="test")
    fence.record_exit(stores[0], Exit(1, "failed", "a test", 0, "test", 1.0))
    (nvme / "checkpoints" / "unknown").mkdir()
    task = DiscardTask(str(nvme), str(staging_site.durable), list(map(str, [*stores[:2], stores[3]])))
    done = run(InProcess(), {"node-0": task})["node-0"].result
    assert list(done["cleared"]) == ["over", "runs"] and list(done["faults"]) == ["unknown"]
    assert sorted(path.name for path in (nvme / "checkpoints").iterdir()) == ["elsewhere", "runs", "unknown"]
    sample = run(InProcess(), {"node-0": MeasureTask(str(nvme))})["node-0"].result["sample"]
    assert 0 < sample["used"] < sample["capacity"]
    run(InProcess(), {"node-0": staging_site.stage("node-0")})
    removed = run(InProcess(), {"node-0": RetainTask(str(nvme), gigabytes=0, days=0, dry_run=False)})["node-0"].result
    assert removed["removed_snapshots"] == (staging_site.snapshot.sha256,)
