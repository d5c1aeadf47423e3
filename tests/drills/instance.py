"""The instance under drill: ``slipway dev`` in a process of its own, so that it can be killed."""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import SIGINT
from typing import Any

import dagster as dg
from dagster import DagsterEventType, DagsterRun, DagsterRunStatus, RunsFilter
from dagster._core.storage.tags import PARTITION_NAME_TAG

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.training import run_policy, specification
from slipway.deploy.embedded.instance import open_storage
from slipway.recipes import assignments
from slipway.recipes.load import Recipes, load
from slipway.recipes.training import TrainingRecipe, with_parameters
from slipway.resources.fleet.embedded import EmbeddedFleet
from slipway.resources.home import NODES, Home
from slipway.resources.launchers.local.local_process import CONTROL_PLANE_VARIABLE
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore, WorkQueue, all_trainings
from slipway.trainer.base.paths import CODE
from slipway.trainer.base.processes import carrying
from slipway.trainer.record.phases import SAVING, VALIDATING
from tests.drills import graphql, small_recipes
from tests.drills.process_table import kill, wait_until

START_SECONDS = 240.0
STOP_SECONDS = 120.0


class Instance:
    """One home and the control plane that runs on it, or does not."""

    def __init__(self, folder: Path, recipes: Path, mark: Mapping[str, str]) -> None:
        """`mark` is in the environment of all that the instance starts."""
        self.home = Home(folder / "home")
        self.recipes: Recipes = load(recipes, {})
        self.tiers = Tiers(durable=str(self.home.durable), nvme=self.home.nvme)
        self.fleet = EmbeddedFleet(self.home.nodes, NODES, reboot_seconds=60.0)
        self.output = folder / "dev.log"
        self._port = free_port()
        self._environment = {
            **os.environ,
            **mark,
            "SLIPWAY_HOME": str(self.home.root),
            "SLIPWAY_RECIPES": str(recipes),
            "SLIPWAY_PORT": str(self._port),
            "SLIPWAY_SERVE_PORT": "0",  # any free one: others may serve beside this
            "PYTHONPATH": str(CODE),
        }
        self._dev: subprocess.Popen[bytes] | None = None
        self._storage: dg.DagsterInstance | None = None

    # The control plane.

    def start(self) -> None:
        """Start it unless it runs."""
        if self._dev is not None and self._dev.poll() is None:
            return
        with self.output.open("wb") as output:
            command = [sys.executable, "-m", "slipway.cli", "dev"]
            self._dev = subprocess.Popen(command, cwd=CODE, env=self._environment, stdout=output, stderr=output)
        wait_until(self._answers, f"the instance answers; see {self.output}", START_SECONDS)

    def crash(self) -> None:
        """Kill -9 daemon, webserver, code server, every run, and what started them. Jobs are not touched."""
        assert self._dev is not None
        kill([self._dev.pid, *self.control_plane()])
        self._dev.wait()
        wait_until(lambda: not self.control_plane(), "the control plane is dead")

    def close(self) -> str:
        """Close it as Ctrl-C does; returns what it printed."""
        if self._dev is not None and self._dev.poll() is None:
            self._dev.send_signal(SIGINT)
            self._dev.wait(STOP_SECONDS)
        return self.output.read_text()

    def dispose(self) -> None:
        self.close()
        if self._storage is not None:
            self._storage.dispose()

    def control_plane(self) -> list[int]:
        """The pids of daemon, webserver, code server and runs."""
        return carrying({CONTROL_PLANE_VARIABLE: str(self.home.root)})

    def pids(self) -> list[int]:
        """The control plane with the process that started it."""
        return [*self.control_plane(), *([self._dev.pid] if self._dev else [])]

    def command(self, *arguments: str) -> str:
        """What `slipway ARGUMENTS` prints."""
        command = [sys.executable, "-m", "slipway.cli", *arguments]
        done = subprocess.run(command, cwd=CODE, env=self._environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def _answers(self) -> bool:
        assert self._dev is not None and self._dev.poll() is None, self.output.read_text()
        return b"Slipway is at" in self.output.read_bytes()

    # Runs, asked for as the UI does.

    def launch(self, *assets: dg.AssetKey, partition: str | None = None) -> str:
        """Materialise assets; returns the run's id."""
        tags = {} if partition is None else {PARTITION_NAME_TAG: partition}
        return graphql.launch(self.url, "slipway", assets, tags)

    def launch_job(self, job: str, partition: str | None, config: Mapping[str, Any] | None = None) -> str:
        """Launch a job, for a partition where it has some, with the configuration of its ops; returns the run's id."""
        return graphql.launch_job(self.url, "slipway", job, partition, config or {})

    def materialize(self, training: TrainingStore) -> str:
        """Materialise a training; returns the run's id."""
        return self.launch(training_key(training), partition=training.id)

    def materialize_again(self, run: str) -> str:
        """Execute a run again; returns the new one's id."""
        return graphql.launch_again(self.url, run)

    def cancel(self, run: str) -> None:
        graphql.terminate(self.url, run)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    # What Dagster has stored.

    @property
    def storage(self) -> dg.DagsterInstance:
        if self._storage is None:
            self._storage = open_storage(self.home)
        return self._storage

    def run(self, id: str) -> DagsterRun:
        dagster_run = self.storage.get_run_by_id(id)
        assert dagster_run is not None, f"run {id} is unknown"
        return dagster_run

    def runs(self, tags: dict[str, str]) -> list[DagsterRun]:
        """The runs with these tags, the newest first."""
        return list(self.storage.get_runs(RunsFilter(tags=tags)))

    def run_after(self, run: str, tags: dict[str, str]) -> str:
        """The newest run with these tags; empty while that is `run`."""
        newest = self.runs(tags)[0].run_id
        return newest if newest != run else ""

    def succeeded(self, run: str) -> bool:
        """Whether the run has; fails when it has ended otherwise."""
        status = self.run(run).status
        assert status not in (DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED), f"run {run}: {status.value}"
        return status is DagsterRunStatus.SUCCESS

    def worker(self, run: str) -> int:
        """The pid of the process that executes the run and its step."""

        def started() -> int:
            for entry in self.storage.all_logs(run, of_type=DagsterEventType.ENGINE_EVENT):
                metadata = entry.dagster_event.engine_event_data.metadata if entry.dagster_event else {}
                if "pid" in metadata and "step_keys" in metadata:
                    return int(str(metadata["pid"].value))
            return 0

        return wait_until(started, f"run {run} executes its step")

    def materializations(self, key: dg.AssetKey, partition: str) -> list[dg.AssetMaterialization]:
        """All of a partition, the newest first."""
        where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
        records = self.storage.fetch_materializations(where, limit=100).records
        return [record.asset_materialization for record in records if record.asset_materialization]

    def observations(self, key: dg.AssetKey, partition: str) -> list[dg.AssetObservation]:
        """All of a partition, the newest first."""
        where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
        records = self.storage.fetch_observations(where, limit=100).records
        return [record.asset_observation for record in records if record.asset_observation]

    def times_shown(self, training: TrainingStore) -> set[int]:
        """How often the training's checkpoints have been materialised; nothing while one has not been."""
        key = keys.key(training.specification().recipe, "checkpoint")
        partitions = [keys.checkpoint_partition(training.id, commit.step) for commit in training.commits()]
        times = {len(self.materializations(key, partition)) for partition in partitions}
        return set() if 0 in times else times

    # Trainings.

    def make_snapshot(self) -> None:
        """Documents, tokenizer and snapshot."""
        nouns = ("documents", "tokenizer", "snapshot")
        run = self.launch(*(keys.key(small_recipes.DATASET, noun) for noun in nouns))
        wait_until(lambda: self.succeeded(run), "the snapshot is made")

    def propose(self, recipe: str, cause: str, no_progress_seconds: float | None = None, **run: Any) -> TrainingStore:
        """A training of its own for the drill named `cause`, known to the graph and not started; `run` sets steps."""
        changed = with_parameters(self.recipes.trainings[recipe], {f"run.{name}": value for name, value in run.items()})
        return self.propose_recipe(changed, cause, no_progress_seconds)

    def propose_recipe(
        self, recipe: TrainingRecipe, cause: str, no_progress_seconds: float | None = None
    ) -> TrainingStore:
        """The same for a recipe of either kind, as it is."""
        current = pointer.current(self.home.durable, small_recipes.DATASET)
        assert current is not None
        fields = [] if no_progress_seconds is None else _deadlines(no_progress_seconds)
        agreed = run_policy(assignments.applied(recipe, fields), fields=fields)
        store = all_trainings(self.tiers).propose(specification(recipe, current, self.tiers, cause), agreed)
        name = keys.training_partitions(recipe.name).name
        assert name is not None
        self.storage.add_dynamic_partitions(name, [store.id])
        return store

    def start_as_a_sensor_does(self, training: TrainingStore) -> str:
        """Want a training without asking for a run; returns the id of the run that the job watch asks for."""
        all_trainings(self.tiers).start(training, "drill", "as a sensor does")
        return wait_until(lambda: self.runs(tags_of(training)), "the job watch asks for a run")[0].run_id

    def open_trainings(self) -> list[str]:
        """The trainings whose duty "run" is open."""
        return all_trainings(self.tiers).pending(WorkQueue.RUN)

    def jobs(self, training: TrainingStore) -> list[str]:
        """The names of all jobs that the training ever had."""
        with suppress(FileNotFoundError):
            return sorted(
                job_folder.name
                for job_folder in self.home.jobs.iterdir()
                if job_folder.name.startswith(f"{training.id}-i")
            )
        return []

    def job_folder(self, training: TrainingStore, incarnation: int) -> Path:
        return self.home.jobs / job_name(training.id, incarnation)


def tags_of(training: TrainingStore) -> dict[str, str]:
    """What the runs that wait for a training are tagged with."""
    return {keys.TRAINING_TAG: training.id}


def training_key(training: TrainingStore) -> dg.AssetKey:
    return keys.key(training.specification().recipe, "training")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _deadlines(seconds: float) -> list[str]:
    """What a person gives to `slipway run` for a rank to be found hanging after so long, whatever it does."""
    phases = ", ".join(f"{phase.name}: {seconds}" for phase in (VALIDATING, SAVING))
    steps = [f"recovery.{name}={seconds}" for name in ("no_progress_seconds", "hang_seconds")]
    return [*steps, f"recovery.phase_seconds={{{phases}}}"]
