"""Branching and changing in the UI: the jobs of a recipe, whose partitions are what there is to choose from."""

from typing import Any

import dagster as dg
import pytest

from slipway.assets import keys
from slipway.resources.trainings import updates
from slipway.resources.trainings.store import WorkQueue
from tests.sensors.platform import TINY, Platform


def execute(platform: Platform, job: str, op: str, partition: str, **config: Any) -> dg.ExecuteInProcessResult:
    """The run that a person launches for a partition."""
    chosen = platform.repository.get_job(f"tiny_{job}")
    result: dg.ExecuteInProcessResult = chosen.execute_in_process(
        {"ops": {f"tiny_{op}": {"config": config}}},
        instance=platform.instance,
        resources=platform.resources,
        raise_on_error=False,
        partition_key=partition,
    )
    return result


def refusal(result: dg.ExecuteInProcessResult) -> str:
    [failure] = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    data = failure.step_failure_data.user_failure_data
    assert data is not None
    return str(data.description)


def test_a_checkpoint_that_is_chosen_is_continued_by_a_training_that_should_run(platform: Platform):
    parent = platform.finished()
    partition = keys.checkpoint_partition(parent.id, 100)
    platform.add(keys.checkpoint_partitions(TINY), partition)
    fields = ["optimizer.learning_rate=0.002", "run.steps=200"]
    result = execute(platform, "branch", "branch_checkpoint", partition, fields=fields, name="slower")
    assert result.success
    [child] = [platform.trainings.store(id) for id in platform.trainings.pending(WorkQueue.RUN) if id != parent.id]
    specification, wish = child.specification(), child.desired()
    assert specification.branch is not None and specification.branch.training == parent.id
    assert specification.identity_config["optimizer"]["learning_rate"] == 0.002
    assert wish is not None and (wish.want, wish.why) == ("run", f"it continues {parent.id}@100: slower")


def test_what_cannot_be_continued_or_changed_fails_the_run_with_the_reason(platform: Platform):
    parent = platform.finished()
    partition = keys.checkpoint_partition(parent.id, 100)
    platform.add(keys.checkpoint_partitions(TINY), partition)
    platform.add(keys.training_partitions(TINY), parent.id)
    result = execute(platform, "branch", "branch_checkpoint", partition, fields=["run.seed=9"])
    assert refusal(result).startswith("run.seed: found 9, expected 0, as it was")
    result = execute(platform, "set", "set_fields", parent.id, fields=["optimizer.clip=2"])
    assert refusal(result).startswith(f"training {parent.id}: it has succeeded")


def test_a_training_that_is_chosen_is_changed(platform: Platform):
    store = platform.start_training("once more")
    result = execute(platform, "set", "set_fields", store.id, fields=["optimizer.learning_rate=0.002"], why="a test")
    assert result.success
    [change] = updates.known(store.folder)
    assert (change.fields, change.why) == ({"optimizer.learning_rate": 0.002}, "a test")


@pytest.mark.slow
def test_the_steps_after_a_checkpoint_that_is_chosen_are_done_again_and_are_the_same(platform: Platform):
    store = platform.finished()
    partition = keys.checkpoint_partition(store.id, 100)
    platform.add(keys.checkpoint_partitions(TINY), partition)
    result = execute(platform, "replay", "replay_steps", partition, steps=2)
    assert result.success, refusal(result)
    [output] = [event for event in result.all_events if event.event_type_value == "STEP_OUTPUT"]
    assert output.step_output_data.metadata["verdict"].value == "equal"
