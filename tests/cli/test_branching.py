"""Branch, replay and set by the command, on a home with a real snapshot and a real finished training."""

import json
import re

import pytest

from slipway.resources.trainings import updates
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.record import changes, ledger
from tests.cli.conftest import Call
from tests.conftest import until
from tests.sensors.conftest import platform, template
from tests.sensors.platform import Platform

__all__ = ["platform", "template"]


@pytest.fixture
def parent(platform: Platform, slipway: Call, monkeypatch: pytest.MonkeyPatch) -> TrainingStore:
    """The finished training, on the home and the recipes that the command has."""
    monkeypatch.setenv("SLIPWAY_HOME", str(platform.home.root))
    monkeypatch.setenv("SLIPWAY_RECIPES", str(platform.root / "recipes"))
    [store] = [candidate for candidate in platform.trainings.stores() if candidate.commits()]
    return store


def steps(store: TrainingStore, field: str) -> dict[int, float]:
    return {event["step"]: event[field] for event in ledger.read(store.folder) if event["event"] == "step"}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_branch_repeats_its_parent_and_one_that_runs_is_changed_and_stopped(
    platform: Platform, parent: TrainingStore, slipway: Call
):
    same = slipway("branch", f"{parent.id}@100", "--name", "the same", "--watch")
    assert same.code == 0 and f"it continues {parent.id}@100\n" in same.out, same.err
    [child] = [candidate for candidate in platform.trainings.stores() if candidate.id != parent.id]
    assert steps(child, "loss") == {step: loss for step, loss in steps(parent, "loss").items() if step > 100}

    endless = slipway("branch", f"{parent.id}@100", "run.steps=1000000", "checkpoint.every=100000", "--json")
    store = platform.trainings.store(json.loads(endless.out)["training"])
    result = slipway("set", store.id, "optimizer.learning_rate=0.002", "--why", "the loss rises")
    assert result.out == f"{store.id} optimizer.learning_rate: 0.01 to 0.002, in place, between two steps\n", result.err
    until(lambda: changes.applied(store.folder), "the ranks to take it over")
    assert slipway("stop", store.id).code == 0
    [change] = updates.known(store.folder)
    assert change.applied is not None
    later = {rate for step, rate in steps(store, "learning_rate").items() if step > change.applied.step}
    assert len(later) > 1 and max(later) <= 0.002
    output = slipway("show", store.id).out
    assert re.search(rf"continues +{parent.id}@100\n", output) and "branched with run.steps: 150 to 1000000\n" in output
    assert "optimizer.learning_rate: 0.01 to 0.002; since step" in output


def test_bad_input_is_refused_with_one_sentence(parent: TrainingStore, slipway: Call):
    near = f"slipway: {parent.id}@99: found no checkpoint of this step, expected one of the nearest: 50, 100, 150\n"
    assert slipway("branch", f"{parent.id}@99").err == near
    assert slipway("replay", f"{parent.id}@99").err == near
    refused = slipway("branch", parent.id[:6], "batch.length=8", "run.steps=999").err
    assert refused.startswith("slipway: batch.length: found 8, expected 16, as it was: ") and "`init`" in refused
    assert "slipway: run.steps: found 150, expected more than 150" in slipway("branch", parent.id).err
    assert "found no FIELD=VALUE" in slipway("branch", f"{parent.id}@100", "steps").err
    assert "it has succeeded" in slipway("set", parent.id, "optimizer.clip=2").err
