"""A dataset built by a cluster of Dask: real processes, which are killed."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slipway.assets.datasets.assets import engine
from slipway.assets.datasets.building import dask_cluster, workers
from slipway.assets.datasets.building.dask_cluster import DaskCluster
from slipway.assets.datasets.documents import extraction
from slipway.recipes.problems import InvalidRecipes
from slipway.resources import platform
from tests.assets.datasets import dask
from tests.assets.datasets.builds import build, content, strays
from tests.assets.datasets.corpora import make_corpus, recipe_for
from tests.conftest import until

SETTINGS = """
slipway: platform/1
tiers: {durable: /durable, nvme: /nvme}
tracking: {uri: "http://mlflow:5000"}
compute:
  dask: {scheduler: "%s", certificates: /secrets/dask}
  cluster: {image: "registry.example/trainer:1"}
"""


@pytest.fixture(autouse=True)
def _small_work_for_many(monkeypatch):
    """Small units, each of them worth a worker."""
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(extraction, "UNIT_FILES", 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dask.started(tmp_path_factory.mktemp("dask"), workers=2) as running:
        yield running


@pytest.fixture
def corpus(tmp_path):
    return make_corpus(tmp_path / "corpus", files=24)


def recipe(corpus: Path) -> Any:
    return recipe_for(corpus, shard_tokens=400)


def undisturbed(corpus: Path, durable: Path) -> dict[str, bytes]:
    """The files of a build by one process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "WORTH_A_PROCESS", sys.maxsize)
        build(recipe(corpus), durable)
    return content(durable)


def settings(folder: Path, scheduler: str) -> Path:
    file = folder / "platform.yaml"
    file.write_text(SETTINGS.lstrip() % scheduler)
    return file


class Twice:
    """Does each task twice at the same time, as a cluster does that takes a slow worker for dead."""

    def run(self, function, tasks):
        with ThreadPoolExecutor(2) as threads:
            for task in tasks:
                first, _ = list(threads.map(function, (task, task)))
                yield first


def test_a_task_may_be_done_twice_at_the_same_time(tmp_path, corpus):
    with workers.on(Twice()):  # type: ignore[arg-type]
        build(recipe(corpus), tmp_path / "twice")
    assert content(tmp_path / "twice") == undisturbed(corpus, tmp_path / "once")
    assert strays(tmp_path / "twice") == []


def test_the_platforms_settings_name_the_cluster(tmp_path, corpus, monkeypatch):
    monkeypatch.setenv(platform.VARIABLE, str(settings(tmp_path, "tls://slipway-dask:8786")))
    with engine(recipe(corpus), print):
        assert workers.current() == DaskCluster("tls://slipway-dask:8786", Path("/secrets/dask"), print)
    assert workers.current() is None


def test_a_recipe_may_stay_on_its_own_machine(tmp_path, corpus, monkeypatch):
    monkeypatch.setenv(platform.VARIABLE, str(settings(tmp_path, "tls://slipway-dask:8786")))
    with engine(recipe(corpus).model_copy(update={"engine": "local"}), print):
        assert workers.current() is None


def test_a_recipe_that_names_dask_is_refused_where_there_is_none(corpus, monkeypatch):
    monkeypatch.delenv(platform.VARIABLE, raising=False)
    with pytest.raises(
        ValueError, match=r"small-corpus: engine: found dask, expected local, or a section compute\.dask"
    ):
        engine(recipe(corpus).model_copy(update={"engine": "dask"}), print)


@pytest.mark.parametrize("address", ["tcp://slipway-dask:8786", "tls://slipway-dask", "tls://user:word@host:8786"])
def test_a_scheduler_has_an_address_with_certificates(tmp_path, address):
    with pytest.raises(InvalidRecipes, match=r"compute\.dask\.scheduler: .*expected tls://HOST:PORT"):
        platform.load(settings(tmp_path, address))


def test_a_missing_certificate_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"compute\.dask\.certificates: found no ca\.crt in .*, expected the file"):
        dask_cluster.security(tmp_path)


@pytest.mark.nightly
def test_the_bytes_are_those_of_this_machine_with_one_worker_and_with_two(tmp_path, corpus):
    local = undisturbed(corpus, tmp_path / "local")
    for count in (1, 2):
        with dask.started(tmp_path / f"dask-{count}", count) as running, workers.on(running.cluster):
            build(recipe(corpus), tmp_path / str(count))
        assert content(tmp_path / str(count)) == local
        assert strays(tmp_path / str(count)) == []


def _end_the_first_worker(task: tuple[Path, int]) -> int:
    """Kill the worker that is the first to do this."""
    folder, number = task
    try:
        (folder / "killed").mkdir()
    except FileExistsError:
        return number
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


@pytest.mark.nightly
def test_the_tasks_of_a_worker_that_dies_are_done_by_another(tmp_path, cluster):
    cluster.start_worker()
    numbers = cluster.cluster.run(_end_the_first_worker, [(tmp_path, number) for number in range(8)])
    assert list(numbers) == list(range(8))


@pytest.mark.nightly
def test_a_task_that_ends_every_worker_fails_the_build_with_the_likely_reason(tmp_path):
    with (
        dask.started(tmp_path / "dask", 1, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES="0") as running,
        pytest.raises(RuntimeError, match=r"ended 1 worker of Dask.*lack of memory: give the workers more"),
    ):
        list(running.cluster.run(_end_the_first_worker, [(tmp_path, 0)]))


def _refuse(number: int) -> int:
    raise ValueError(f"found {number}")


@pytest.mark.nightly
def test_an_error_of_a_task_is_raised_by_the_build(cluster):
    with pytest.raises(ValueError, match="found 7"):
        list(cluster.cluster.run(_refuse, [7, 8]))


def _wait_for(file: Path) -> str:
    (file.parent / f"begun-{file.name}").touch()
    until(file.exists, f"{file} to be there")
    return file.name


@pytest.mark.nightly
def test_a_build_goes_on_when_its_scheduler_was_lost(tmp_path):
    """Its workers end with it, and are started again by what keeps them."""
    files = [tmp_path / str(number) for number in range(3)]
    with dask.started(tmp_path / "dask", 1) as running, ThreadPoolExecutor(1) as threads:
        lines: list[str] = []
        one = dataclasses.replace(running.cluster, log=lines.append)
        files[0].touch()
        future = threads.submit(lambda: list(one.run(_wait_for, files)))
        until((tmp_path / "begun-1").exists, "the second task to begin")
        running.restart_scheduler()
        running.start_worker()
        for file in files:
            file.touch()
        assert future.result() == ["0", "1", "2"]
    assert any("was lost: its tasks are given to it again" in line for line in lines)


@pytest.mark.nightly
def test_a_scheduler_that_is_lost_for_long_while_a_result_is_used_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 3.0)
    monkeypatch.setattr(dask_cluster, "IN_FLIGHT", 1)
    with dask.started(tmp_path / "dask", 1) as running, running.cluster._connected(time.monotonic()) as client:
        results = dask_cluster._results(client, str, dask_cluster._Begun(iter([1, 2])), lambda _: None)
        assert next(results) == "1"
        running.end()
        until(lambda: client.status == "closed", "the client to give up the scheduler")
        assert list(results) == []


@pytest.mark.nightly
def test_a_build_says_that_all_workers_have_other_code_and_fails_when_that_lasts(cluster, monkeypatch):
    cluster.wait()
    other_code, lines = dask_cluster.digest_of_code(), list[str]()
    monkeypatch.setattr(dask_cluster, "digest_of_code", lambda: "f" * 16)
    monkeypatch.setattr(dask_cluster, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(dask_cluster, "WORKER_PATIENCE_SECONDS", 0.5)
    workers, own = rf"found \d workers? with slipway-{other_code}", r"with the code of this build, slipway-f{16}"
    with pytest.raises(RuntimeError, match=rf"compute\.dask: {workers} .*, expected one {own}"):
        list(dataclasses.replace(cluster.cluster, log=lines.append).run(_refuse, [1]))
    [line] = lines
    assert re.search(rf"waits for a worker of Dask {own}: {workers}", line)


@pytest.mark.nightly
def test_a_build_without_a_worker_fails_when_that_lasts(tmp_path, monkeypatch):
    monkeypatch.setattr(dask_cluster, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(dask_cluster, "WORKER_PATIENCE_SECONDS", 0.5)
    with (
        dask.started(tmp_path / "dask", 0) as running,
        pytest.raises(RuntimeError, match=r"compute\.dask: found no worker for .*, expected one with the code"),
    ):
        list(running.cluster.run(_refuse, [1]))


@pytest.mark.nightly
def test_who_has_other_certificates_is_refused(tmp_path, cluster, monkeypatch):
    dask.write_certificates(tmp_path / "stranger")
    monkeypatch.setattr(dask_cluster, "PATIENCE_SECONDS", 0.0)
    stranger = DaskCluster(cluster.scheduler, tmp_path / "stranger", lambda _: None)
    with pytest.raises(ConnectionError, match=r"compute\.dask\.scheduler: found no scheduler at tls://"):
        list(stranger.run(_refuse, [1]))


@pytest.mark.nightly
def test_a_build_that_is_killed_leaves_no_task_and_the_next_one_makes_no_segment_again(tmp_path, corpus, cluster):
    durable, dataset_recipe = tmp_path / "durable", recipe(corpus)
    task = {"recipe": dataset_recipe.model_dump(mode="json"), "durable": str(durable)}
    addresses = {"scheduler": cluster.scheduler, "certificates": str(cluster.certificates)}
    driver = subprocess.Popen([sys.executable, "-m", __name__, json.dumps({**task, **addresses})], cwd=dask.ROOT)
    until(lambda: list((durable / "segments").glob("*.parquet")), "the first segment")
    driver.kill()
    driver.wait()
    before = {path: path.stat().st_ino for path in (durable / "segments").glob("*.parquet")}
    until(lambda: not _tasks_of(cluster), "the tasks of the killed build to be forgotten")
    with workers.on(cluster.cluster):
        build(dataset_recipe, durable)
    assert {path: path.stat().st_ino for path in before} == before
    assert content(durable) == undisturbed(corpus, tmp_path / "undisturbed")
    assert strays(durable) == []


def _tasks_of(cluster: dask.Cluster) -> int:
    """How many tasks the scheduler knows."""
    from distributed import Client

    security = dask_cluster.security(cluster.certificates)
    with Client(cluster.scheduler, security=security, set_as_default=False) as client:
        return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def main(task: dict[str, Any]) -> None:
    """A build in a process of its own."""
    from slipway.assets.datasets.reading import sources
    from slipway.recipes.dataset import DatasetRecipe

    workers.WORTH_A_PROCESS, extraction.UNIT_FILES, sources.SETTLED_SECONDS = 0, 4, -1.0
    with workers.on(DaskCluster(task["scheduler"], Path(task["certificates"]), print)):
        build(DatasetRecipe.model_validate_json(json.dumps(task["recipe"])), Path(task["durable"]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
