"""Trainings that wait hold the runs that show them for as long as they live: nothing else waits behind them."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster import DagsterRunStatus

from slipway.assets import keys
from slipway.deploy.embedded import instance as embedded
from slipway.resources import run_kinds
from slipway.resources.run_kinds import RunKind
from slipway.resources.trainings.store import TrainingStore, all_trainings
from tests.drills import small_recipes
from tests.drills.conftest import TRIAL_STEPS
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until
from tests.drills.waiting import waiting

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

RECIPE, LANE = small_recipes.ALONE, f"drill_{small_recipes.ALONE}"
SLOTS = 2
"""Of each kind, instead of the embedded instance's own: the test holds all of them."""
USUAL_SECONDS = 120.0
"""What a run takes from the click to its end on a busy machine; much more than it does alone."""
PATIENCE = 600.0


@pytest.fixture
def narrow(tmp_path: Path, own_mark: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """A running instance with few slots."""
    settings = yaml.safe_load(embedded.SETTINGS.read_text())
    for limit in settings["run_coordinator"]["config"]["tag_concurrency_limits"]:
        limit["limit"] = SLOTS
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    monkeypatch.setattr(embedded, "SETTINGS", tmp_path / "dagster.yaml")
    recipes = small_recipes.write(tmp_path, TRIAL_STEPS)
    drill_instance = Instance(tmp_path, recipes, own_mark)
    monkeypatch.setenv("SLIPWAY_RECIPES", str(recipes))
    with embedded.running(drill_instance.home, drill_instance._port):
        drill_instance.make_snapshot()
        yield drill_instance
        drill_instance.dispose()


def test_with_twice_as_many_trainings_as_slots_all_other_work_is_done_in_its_usual_time(narrow: Instance):
    with waiting(narrow, *(f"waits {number}" for number in range(2 * SLOTS))) as trainings_that_wait:
        _fill(narrow)
        ended = _trained(narrow, "while the queue is full")
        partition = keys.checkpoint_partition(ended.id, ended.commits()[-1].step)
        staging, evaluation = keys.key(small_recipes.DATASET, "staged_shards"), keys.key(RECIPE, "evaluation")
        done = {
            "evaluation": _seconds(narrow, lambda: narrow.launch(evaluation, partition=partition)),
            "staging": _seconds(narrow, lambda: narrow.launch(staging, partition="node-0")),
            "promotion": _seconds(narrow, lambda: _verb(narrow, f"{LANE}_freeze", None, f"{LANE}_freeze_model")),
            "stop": _seconds(
                narrow, lambda: _verb(narrow, f"{RECIPE}_stop", trainings_that_wait[0].id, f"{RECIPE}_stop_training")
            ),
        }
        assert {name: seconds for name, seconds in done.items() if seconds > USUAL_SECONDS} == {}, done
        desired = trainings_that_wait[0].desired()
        assert desired is not None and desired.want == "stop"


def _trained(instance: Instance, cause: str) -> TrainingStore:
    """A training that has come to its end, was evaluated and judged, and whose result was shown; by sensors alone."""
    training = instance.propose(RECIPE, cause, steps=50)
    all_trainings(instance.tiers).start(training, "drill", "as a person does")
    key = keys.key(RECIPE, "training")
    wait_until(lambda: instance.materializations(key, training.id), f"{cause}: its result is shown", PATIENCE)
    partition = keys.checkpoint_partition(training.id, training.commits()[-1].step)
    wait_until(
        lambda: instance.materializations(keys.key(RECIPE, "evaluation"), partition),
        f"{cause}: it is evaluated",
        PATIENCE,
    )
    wait_until(
        lambda: instance.materializations(keys.key(RECIPE, "candidate"), training.id),
        f"{cause}: it is judged",
        PATIENCE,
    )
    return training


def _fill(instance: Instance) -> None:
    """Every slot of trainings is taken, and more runs wait for one."""

    def statuses() -> list[DagsterRunStatus]:
        return [run.status for run in instance.runs({run_kinds.TAG: RunKind.TRAINING.value})]

    wait_until(lambda: statuses().count(DagsterRunStatus.STARTED) == SLOTS, "every slot is taken", PATIENCE)
    wait_until(lambda: DagsterRunStatus.QUEUED in statuses(), "others wait for one", PATIENCE)


def _seconds(instance: Instance, launch: Callable[[], str]) -> float:
    """How long a run takes, from the click to its end."""
    begun = time.monotonic()
    run = launch()
    wait_until(lambda: instance.succeeded(run), f"run {run} is done", PATIENCE)
    return time.monotonic() - begun


def _verb(instance: Instance, job: str, partition: str | None, op: str) -> str:
    config: dict[str, Any] = {op: {"config": {"why": "a drill"}}}
    return instance.launch_job(job, partition, config)
