"""A small platform with everything real: recipes, definitions, an instance on disk, launcher, fleet, MLflow.

`tick` evaluates a sensor, `apply` does with the outcome what Dagster's daemon does, and `launch` runs a request.
"""

import copy
import dataclasses
import functools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import dagster as dg
import yaml
from dagster import DagsterRunStatus
from dagster._core.definitions.sensor_definition import SensorExecutionData

from slipway.assets import keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import steps
from slipway.assets.measurement import Measuring
from slipway.assets.promotion.evaluation import evaluate
from slipway.assets.training import run_policy, specification
from slipway.definitions import build
from slipway.recipes.assignments import applied
from slipway.recipes.load import Recipes, load
from slipway.recipes.strict import validate
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources.compute.embedded import EmbeddedCompute
from slipway.resources.home import Home
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.resource_sets import embedded_resources
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.control import TrainingControl
from slipway.resources.trainings.decision import Action
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue, all_trainings
from tests.assets.datasets.corpora import make_corpus
from tests.conftest import until

TINY, SEARCH = "tiny", "tiny-search"
STEPS, EVERY = 150, 50
BY = "test"

_TRAINING = {
    "slipway": "training/1",
    "description": "A decoder of a few thousand parameters",
    "owner": "team:training",
    "dataset": "texts",
    "model": {"layers": 2, "width": 32, "heads": 2, "kv_heads": 1, "hidden": 64},
    "batch": {"sequences": 4, "length": 16, "micro": 4},
    "optimizer": {"learning_rate": 0.01},
    "run": {"steps": STEPS},
    "checkpoint": {"every": EVERY},
    "placement": {"nodes": {"min": 1, "max": 1}, "ranks_per_node": 1},
    "recovery": {"no_progress_seconds": 30, "failures_without_checkpoint": 2},
    "registered_model": "tiny-model",
    "retrain": "0 3 * * 0",
}
_SWEEP = {
    "slipway": "sweep/1",
    "description": "The learning rate",
    "owner": "team:training",
    "training": TINY,
    "space": {"optimizer.learning_rate": {"loguniform": [0.001, 0.03]}},
    "sampler": "random",
    "seed": 1,
    "trials": 4,
    "parallel": 2,
    "scheduler": {"kind": "stopping", "rungs": [50, 100], "eta": 2},
    "trial": {"run.steps": 100, "validation.every": 50, "validation.sequences": 4, "checkpoint.every": 100},
    "limits": {"failed_trials": 1, "retries": 1},
}


def write_recipes(folder: Path) -> None:
    """A dataset over the corpus beside the folder, a training and a sweep."""
    dataset = {
        "slipway": "dataset/1",
        "description": "Small texts",
        "owner": "team:data",
        "source": {"kind": "directory", "path": "../../corpus"},
        "tokenizer": {"vocab_size": 300},
        "split": {"validation": 0.25},
        "shards": {"tokens": 5000},
        "cleaning": {"near_duplicates": None, "decontamination": None},
    }
    for path, recipe in {"datasets/texts": dataset, f"trainings/{TINY}": _TRAINING, f"sweeps/{SEARCH}": _SWEEP}.items():
        file = folder / f"{path}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(recipe, sort_keys=False))


class Platform:
    """One home, and an instance of Dagster over it."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.root, self.instance = root, instance
        self.home = Home(root / "home")
        self.recipes: Recipes = load(root / "recipes", {})
        self.resources = embedded_resources(self.home)
        self.repository = build(self.recipes, self.resources).get_repository_def()
        self.cursors: dict[str, str | None] = {}
        """What each sensor had Dagster keep, as of the last tick that was applied."""

    def with_training(self, recipe: ModelRecipe) -> "Platform":
        """The same home and instance with one more training recipe."""
        more = copy.copy(self)
        more.recipes = dataclasses.replace(self.recipes, trainings={**self.recipes.trainings, recipe.name: recipe})
        more.repository = build(more.recipes, self.resources).get_repository_def()
        return more

    def with_sweep(self, **changed: Any) -> "Platform":
        """The same home and instance, whose sweep has these fields otherwise."""
        more = copy.copy(self)
        value = {**self.recipes.sweeps[SEARCH].model_dump(mode="json", exclude_unset=True), **changed}
        recipe = validate(SweepRecipe, value).model_copy(update={"name": SEARCH})
        more.recipes = dataclasses.replace(self.recipes, sweeps={SEARCH: recipe})
        more.repository = build(more.recipes, self.resources).get_repository_def()
        return more

    @property
    def tiers(self) -> Tiers:
        tiers = self.resources["tiers"]
        assert isinstance(tiers, Tiers)
        return tiers

    @property
    def compute(self) -> EmbeddedCompute:
        compute = self.resources["compute"]
        assert isinstance(compute, EmbeddedCompute)
        return compute

    @property
    def tracking(self) -> Tracking:
        tracking = self.resources["tracking"]
        assert isinstance(tracking, Tracking)
        return tracking

    @property
    def measuring(self) -> Measuring:
        return Measuring(self.tiers, self.compute)

    @property
    def control(self) -> TrainingControl:
        return self.compute.control(self.tiers)

    @property
    def trainings(self) -> Trainings:
        return all_trainings(self.tiers)

    @functools.cached_property
    def recipe(self) -> ModelRecipe:
        return self.recipes.trainings[TINY]

    def proposed(
        self, cause: str = "", origin: dict[str, Any] | None = None, init: str = "", **changes: dict[str, Any]
    ) -> TrainingStore:
        """A training of the recipe, with fields of it set otherwise for it alone, that is not wanted yet."""
        fields = [f"{name}.{field}={json.dumps(value)}" for name in changes for field, value in changes[name].items()]
        recipe = applied(self.recipe, fields)
        current = pointer.current(self.home.durable, recipe.datasets[0])
        assert current is not None
        agreed = dataclasses.replace(run_policy(recipe, origin, fields), init=init)
        store = self.trainings.propose(specification(recipe, current, self.tiers, cause), agreed)
        self.add(keys.training_partitions(TINY), store.id)
        return store

    def start_training(self, cause: str = "", **changes: dict[str, Any]) -> TrainingStore:
        """A training that should run, with every duty open."""
        store = self.proposed(cause, None, "", **changes)
        self.trainings.start(store, BY, "the test wants it")
        return store

    def finished(self, *duties: WorkQueue) -> TrainingStore:
        """The training that came with the home: over, evaluated, and nothing of it shown; these duties are open."""
        stores = list(self.trainings.stores())
        [store] = [store for store in stores if (ended := store.exit()) and ended.outcome == "succeeded"]
        self.trainings.start(store, BY, "the test wants it", duties)
        return store

    def add(self, partitions: dg.DynamicPartitionsDefinition, *names: str) -> None:
        assert partitions.name is not None
        self.instance.add_dynamic_partitions(partitions.name, list(names))

    def partitions(self, partitions: dg.DynamicPartitionsDefinition) -> list[str]:
        assert partitions.name is not None
        return list(self.instance.get_dynamic_partitions(partitions.name))

    def advance(self, store: TrainingStore, *awaited: Action) -> None:
        until(lambda: self.control.advance(store, BY) in (awaited or (Action.DONE,)), f"{store.id} to be advanced")

    def stopped(self, store: TrainingStore) -> None:
        store.want("stop", BY, "the test is over")
        self.advance(store)

    def tick(self, sensor: str) -> SensorExecutionData:
        """What one evaluation of the sensor asks for; nothing of it is done."""
        with dg.build_sensor_context(
            instance=self.instance,
            repository_def=self.repository,
            resources=self.resources,
            sensor_name=sensor,
            cursor=self.cursors.get(sensor),
        ) as context:
            return self.repository.get_sensor_def(sensor).evaluate_tick(context)

    def apply(self, sensor: str) -> list[dg.RunRequest]:
        """One tick, with its events and partitions brought into the instance; the runs it requests."""
        outcome = self.tick(sensor)
        self.cursors[sensor] = outcome.cursor
        for event in outcome.asset_events:
            self.instance.report_runless_asset_event(event)
        for request in outcome.dynamic_partitions_requests or []:
            if isinstance(request, dg.AddDynamicPartitionsRequest):
                self.instance.add_dynamic_partitions(request.partitions_def_name, list(request.partition_keys))
            else:
                for key in request.partition_keys:
                    self.instance.delete_dynamic_partition(request.partitions_def_name, key)
        return list(outcome.run_requests or [])

    def queue(self, request: dg.RunRequest) -> dg.DagsterRun:
        """A run of the request that is not executed: it waits for its worker."""
        return self.instance.create_run_for_job(
            self._job(request), tags=dict(request.tags), status=DagsterRunStatus.NOT_STARTED
        )

    def end(self, run: dg.DagsterRun, status: DagsterRunStatus) -> None:
        """Let a queued run end, after the clock's grain."""
        time.sleep(0.01)
        if status is DagsterRunStatus.CANCELED:
            self.instance.report_run_canceling(run)
            self.instance.report_run_canceled(run)
        else:
            self.instance.report_run_failed(run, "a test")

    def launch(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        """Execute what a sensor requested."""
        return self._job(request).execute_in_process(
            instance=self.instance, tags=dict(request.tags), raise_on_error=False, resources=self.resources
        )

    def materialize(self, assets: Iterable[dg.AssetKey], partition: str | None = None) -> dg.ExecuteInProcessResult:
        """What a person does in the UI."""
        tags = {"dagster/partition": partition} if partition else {}
        return self.launch(dg.RunRequest(asset_selection=list(assets), tags=tags))

    def log_lines(self, run_id: str) -> list[str]:
        """What a run said in its log."""
        return [entry.user_message for entry in self.instance.all_logs(run_id)]

    def _job(self, request: dg.RunRequest) -> dg.JobDefinition:
        assert request.asset_selection is not None
        asset_job = self.repository.get_implicit_global_asset_job_def()
        return asset_job.get_subset(asset_selection=set(request.asset_selection))

    def materializations(self, noun: str, partition: str, recipe: str = TINY) -> list[dg.AssetMaterialization]:
        where = dg.AssetRecordsFilter(asset_key=keys.key(recipe, noun), asset_partitions=[partition])
        records = self.instance.fetch_materializations(where, limit=100).records
        return [record.asset_materialization for record in records if record.asset_materialization]

    def observations(self, partition: str, noun: str = "training") -> list[dg.AssetObservation]:
        where = dg.AssetRecordsFilter(asset_key=keys.key(TINY, noun), asset_partitions=[partition])
        records = self.instance.fetch_observations(where, limit=100).records
        return [record.asset_observation for record in records if record.asset_observation]


def make_home(root: Path, instance: dg.DagsterInstance) -> None:
    """A home with a snapshot and a finished training with every duty open, to be copied by each test."""
    make_corpus(root / "corpus")
    write_recipes(root / "recipes")
    platform = Platform(root, instance)
    dataset, durable = platform.recipes.datasets["texts"], platform.home.durable
    source = steps.make_documents(dataset, durable).inputs["source"]["digest"]
    steps.make_tokenizer(dataset, durable)
    pointer.point(durable, dataset.name, steps.make_snapshot(dataset, durable).result["sha256"], source)
    store = platform.start_training()
    platform.advance(store)
    evaluate(store.read(), store.commits(), platform.measuring)
    for duty in WorkQueue:
        platform.trainings.close(store.id, duty)
