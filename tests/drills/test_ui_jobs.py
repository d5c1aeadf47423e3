"""What a person does from the launchpad: each job is launched through the webserver, with its typed configuration."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.assets import keys
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_node_is_taken_out_of_service_and_back_for_a_reason_that_stays_on_record(instance: Instance):
    wait_until(lambda: "node-1" in _partitions(instance), "the launchpad offers the nodes")
    _succeed(instance, "node_set", "node-1", {"set_node": _config("quarantine", "a new cable")})
    assert '"standing": "quarantined"' in instance.command("nodes", "list", "--json")
    _succeed(instance, "node_set", "node-1", {"set_node": _config("release", "it fits")})
    output = instance.command("nodes", "show", "node-1")
    assert "a new cable" in output and "it fits" in output


def test_a_choice_that_is_not_on_the_list_is_refused_before_a_run_begins(instance: Instance):
    with pytest.raises(AssertionError, match="RunConfigValidationInvalid"):
        instance.launch_job("node_set", "node-1", {"set_node": _config("burn", "a test")})
    with pytest.raises(AssertionError, match="RunConfigValidationInvalid"):
        instance.launch_job("node_set", "node-1", {"set_node": {"config": {"choice": "release"}}})


def test_a_node_is_measured(instance: Instance):
    config = {"platform__preflight": {"config": {"seconds": 1.0, "disk_size": "8M"}}}
    _succeed(instance, "node_diagnose", "node-0", config)
    [done, *_] = instance.materializations(keys.PREFLIGHT, "node-0")
    assert done.metadata["node"].value == "node-0" and done.metadata["verdict"].value


def test_the_steps_after_a_checkpoint_are_done_again_and_are_the_same(instance: Instance):
    training = instance.propose(small_recipes.ALONE, "to be replayed", steps=50)
    instance.start_as_a_sensor_does(training)
    wait_until(lambda: training.id not in instance.open_trainings(), "the training is over")
    partition = keys.checkpoint_partition(training.id, 25)
    names = keys.checkpoint_partitions(small_recipes.ALONE)
    wait_until(lambda: partition in instance.storage.get_dynamic_partitions(names.name or ""), "it is shown")
    _succeed(instance, "alone_replay", partition, {"alone_replay_steps": {"config": {"steps": 3}}})


def _config(choice: str, why: str) -> dict[str, dict[str, str]]:
    return {"config": {"choice": choice, "why": why}}


def _succeed(instance: Instance, job: str, partition: str, config: Mapping[str, Any]) -> None:
    run = instance.launch_job(job, partition, config)
    wait_until(lambda: instance.succeeded(run), f"{job} is done")


def _partitions(instance: Instance) -> list[str]:
    return list(instance.storage.get_dynamic_partitions(keys.NODES.name or ""))
