"""Trainings that wait hold the runs that show them for as long as they live: nothing else waits behind them."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml
from dagster import DagsterRunStatus

from assets import keys
from assets.datasets.snapshots import pointer
from assets.training import specification, terms
from deploy.embedded.instance import SETTINGS
from recipes.assignments import applied
from resources import run_kinds
from resources.run_kinds import RunKind
from resources.trainings.roots import trainings
from resources.trainings.store import TrainingStore
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

RECIPE, LANE = small_recipes.ALONE, f"drill_{small_recipes.ALONE}"
MORE_NODES = ["placement.nodes={min: 3, max: 3}"]
"""More than the fleet has: such a training waits, and so does the run that shows it."""
USUAL_SECONDS = 60.0
"""What a run takes from the click to its end on a busy machine; much more than it does alone."""


def test_with_twice_as_many_trainings_as_slots_all_other_work_is_done_in_its_usual_time(instance: Instance):
    limits = {
        each["value"]: each["limit"]
        for each in yaml.safe_load(SETTINGS.read_text())["run_coordinator"]["config"].get("tag_concurrency_limits", [])
    }
    first = _trained(instance, "before the queue is full")
    partition = keys.checkpoint_partition(first.id, first.commits()[-1].step)
    with _waiting(instance, 2 * max(limits.values())) as waiting:
        _shown(instance, limits["training"])
        done = {
            "evaluation": _seconds(instance, lambda: instance.launch(keys.key(RECIPE, "evaluation"), partition=partition)),
            "staging": _seconds(
                instance,
                lambda: instance.launch(keys.key(small_recipes.DATASET, "staged_shards"), partition="node-0"),
            ),
            "promotion": _seconds(instance, lambda: _verb(instance, f"{LANE}_freeze", None, f"{LANE}_freeze_model")),
            "stop": _seconds(
                instance, lambda: _verb(instance, f"{RECIPE}_stop", waiting[0].id, f"{RECIPE}_stop_training")
            ),
        }
        assert {name: seconds for name, seconds in done.items() if seconds > USUAL_SECONDS} == {}, done
        desired = waiting[0].desired()
        assert desired is not None and desired.want == "stop"
        _trained(instance, "while the queue is full")
    _seconds(instance, lambda: _verb(instance, f"{LANE}_thaw", None, f"{LANE}_thaw_model"))


def _trained(instance: Instance, cause: str) -> TrainingStore:
    """A training that has come to its end, was evaluated and judged, and whose result was shown; by sensors alone."""
    training = instance.propose(RECIPE, cause, steps=50)
    trainings(instance.tiers).start(training, "drill", "as a person does")
    key = keys.key(RECIPE, "training")
    wait_until(lambda: instance.materialisations(key, training.id), f"{cause}: its result is shown", 400)
    partition = keys.checkpoint_partition(training.id, training.commits()[-1].step)
    wait_until(lambda: instance.materialisations(keys.key(RECIPE, "evaluation"), partition), f"{cause}: it is evaluated")
    wait_until(lambda: instance.materialisations(keys.key(RECIPE, "candidate"), training.id), f"{cause}: it is judged")
    return training


@contextmanager
def _waiting(instance: Instance, number: int) -> Iterator[list[TrainingStore]]:
    """So many trainings that wait for nodes; afterwards they are stopped."""
    current = pointer.current(instance.home.durable, small_recipes.DATASET)
    assert current is not None
    recipe = applied(instance.recipes.trainings[RECIPE], MORE_NODES)
    agreed, root = terms(recipe, fields=MORE_NODES), trainings(instance.tiers)
    stores = [
        root.propose(specification(recipe, current, instance.tiers, f"waits {n}"), agreed) for n in range(number)
    ]
    try:
        instance.storage.add_dynamic_partitions(
            str(keys.training_partitions(RECIPE).name), [store.id for store in stores]
        )
        for store in stores:
            root.start(store, "drill", "to wait")
        yield stores
    finally:
        for store in stores:
            store.want("stop", "drill", "it is over")
        wait_until(lambda: not {store.id for store in stores} & set(instance.open_trainings()), "all are stopped", 400)


def _shown(instance: Instance, slots: int) -> None:
    """Every slot of trainings is taken, and more runs wait for one."""

    def statuses() -> list[DagsterRunStatus]:
        return [run.status for run in instance.runs({run_kinds.TAG: RunKind.TRAINING})]

    wait_until(lambda: statuses().count(DagsterRunStatus.STARTED) == slots, "every slot is taken")
    wait_until(lambda: DagsterRunStatus.QUEUED in statuses(), "others wait for one")


def _seconds(instance: Instance, launch: Callable[[], str]) -> float:
    """How long a run takes, from the click to its end."""
    begun = time.monotonic()
    run = launch()
    wait_until(lambda: instance.succeeded(run), f"run {run} is done")
    return time.monotonic() - begun


def _verb(instance: Instance, job: str, partition: str | None, op: str) -> str:
    config: dict[str, Any] = {op: {"config": {"why": "a drill"}}}
    return instance.launch_job(job, partition, config)
