"""A champion by the launchpad alone: promoted, rolled back, exported and served, each through the webserver.

All of it is real: two trainings, their evaluations and versions, the gate, and the front that answers.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from slipway.assets import keys
from slipway.recipes.assignments import applied
from slipway.resources.mlflow.registry import TRAINING_TAG
from slipway.resources.promotions import promotion
from slipway.serving.records import ServingRecords
from slipway.trainer.start import huggingface
from tests.drills import small_recipes
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
RECIPE = small_recipes.ALONE
MODEL, LANE = f"drill-{RECIPE}", f"drill_{RECIPE}"
LEARNS = ["optimizer.learning_rate=1e-2", "batch.sequences=16", "batch.micro=16", "batch.length=64"]
"""With these it beats, in short steps, a guess by frequency alone."""
PATIENCE = 600.0
"""Seconds that a training may take to become the champion; much more than it does."""


def test_a_person_promotes_rolls_back_exports_and_serves_a_champion(instance: Instance):
    _demote(instance)  # what another test may have left
    first = _train_until_champion(instance, steps=200)
    _demote(instance)
    second = _train_until_champion(instance, steps=225)
    _done(instance, "rollback", {"version": int(first), "why": "it repeats itself"})
    assert _champion(instance) == first
    _done(instance, "rollback", {"why": "so did the other"})
    assert _champion(instance) == second, "without a version, the champion before this one comes back"
    _demote(instance)
    _done(instance, "promote", {"why": "it is the newest candidate"})
    assert _champion(instance) == second
    output = instance.command("models", "show", MODEL)
    assert "it repeats itself" in output and "it is the newest candidate" in output
    _is_exported(instance)
    _is_served(instance, first, second)


def _train_until_champion(instance: Instance, steps: int) -> str:
    """A training, whose best checkpoint the platform registers and promotes by itself; returns the version."""
    fields = [f"run.steps={steps}", *LEARNS]
    training = instance.propose_recipe(applied(instance.recipes.trainings[RECIPE], fields), f"champion {steps}")
    instance.start_as_a_sensor_does(training)

    def version() -> str:
        champion_version = promotion.champion(instance.home.durable, MODEL)
        return (
            champion_version.version
            if champion_version is not None and champion_version.tags[TRAINING_TAG] == training.id
            else ""
        )

    return wait_until(version, f"{training.id} is the champion", PATIENCE)


def _is_exported(instance: Instance) -> None:
    """The job of the recipe writes the champion's checkpoint in the Hugging Face layout, in the type chosen."""
    champion_version = promotion.champion(instance.home.durable, MODEL)
    assert champion_version is not None
    offered = keys.checkpoint_partitions(RECIPE).name or ""
    step = int(Path(champion_version.source).name.partition(".")[0])
    checkpoint = keys.checkpoint_partition(champion_version.tags[TRAINING_TAG], step)
    wait_until(lambda: checkpoint in instance.storage.get_dynamic_partitions(offered), "the launchpad offers it")
    config = {f"{RECIPE}_export_checkpoint": {"config": {"precision": "fp32"}}}
    _succeed(instance, f"{RECIPE}_export", checkpoint, config)
    (written,) = (instance.home.durable / "exports").glob(f"{champion_version.tags[TRAINING_TAG]}.*-fp32")
    with safe_open(str(written / huggingface.WEIGHTS), "pt") as weights:
        assert {str(weights.get_tensor(name).dtype) for name in weights.keys()} == {"torch.float32"}  # noqa: SIM118


def _is_served(instance: Instance, first: str, second: str) -> None:
    """The champion answers, then another version, then the champion again; in the end nothing does."""
    _done(instance, "serve", {"want": "serve"})
    wait_until(lambda: _answering(instance) == [second], "the champion answers", PATIENCE)
    answer = json.loads(instance.command("models", "ask", MODEL, "the", "--tokens", "8", "--json"))
    assert answer["choices"] and answer["system_fingerprint"].startswith(f"{MODEL}@{second}")
    _done(instance, "serve", {"want": "serve", "version": int(first)})
    wait_until(lambda: _answering(instance) == [first], "the other version answers", PATIENCE)
    _done(instance, "serve", {"want": "back"})
    wait_until(lambda: _answering(instance) == [second], "the champion answers again", PATIENCE)
    _done(instance, "serve", {"want": "stop"})
    wait_until(lambda: _answering(instance) == [], "nothing answers", PATIENCE)


def _champion(instance: Instance) -> str:
    champion_version = promotion.champion(instance.home.durable, MODEL)
    return champion_version.version if champion_version is not None else ""


def _answering(instance: Instance) -> list[str]:
    """The versions that answer the newest wish with all of the traffic."""
    records = ServingRecords(instance.home.durable)
    answering = records.answering(MODEL)
    if answering is None or answering.wish != records.state(MODEL).number:
        return ["what answered before"]
    return [share.version.number for share in answering.shares if share.ready and share.share]


def _demote(instance: Instance) -> None:
    if _champion(instance):
        _done(instance, "demote", {"why": "the next one is to be judged alone"})
        assert not _champion(instance)


def _done(instance: Instance, verb: str, config: Mapping[str, Any]) -> None:
    """Launch a verb of the model as a person does, and wait until its run has succeeded."""
    _succeed(instance, f"{LANE}_{verb}", None, {f"{LANE}_{verb}_model": {"config": config}})


def _succeed(instance: Instance, job: str, partition: str | None, config: Mapping[str, Any]) -> None:
    run = instance.launch_job(job, partition, config)
    wait_until(lambda: instance.succeeded(run), f"{job} is done", PATIENCE)
