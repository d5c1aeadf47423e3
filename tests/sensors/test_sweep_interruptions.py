"""Sweeps that are interrupted by a kill or by a person; and trials of two ranks, all of whose bytes are sealed."""

import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from slipway.assets.sweeps import steering
from slipway.assets.sweeps.assets import current_subject, open_sweep
from slipway.assets.sweeps.controller import Controller
from slipway.assets.sweeps.events import Closed, Decided, Event, Paused, Proposed, Resumed
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.store import SweepStore
from slipway.assets.sweeps.trials import trials_of
from slipway.recipes.training import ModelRecipe
from slipway.trainer.checkpoint.disk import encryption
from tests.conftest import Marked, until
from tests.sensors.platform import SEARCH, Platform
from tests.sensors.test_sweep_controller import controlling
from tests.sensors.test_sweep_schedulers import RUNGS, TRIAL, TRIALS, must_have_trained_each_step_once

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

PROMOTION = {"kind": "promotion", **RUNGS}


def searched(platform: Platform, recipe: ModelRecipe | None = None, **changed: Any) -> tuple[Platform, SearchSubject]:
    more = platform.with_sweep(**{"scheduler": PROMOTION, "trial": TRIAL, "trials": TRIALS, **changed})
    own = recipe or more.recipe
    return more, current_subject(more.recipes.sweeps[SEARCH], own, more.tiers, more.tracking)


def decisions(store: SweepStore) -> list[Event]:
    return [event for event in store.read() if isinstance(event, Proposed | Decided | Resumed | Closed)]


def state(store: SweepStore) -> SweepState:
    sweep_state = store.state()
    assert sweep_state is not None
    return sweep_state


def killed_when(process: "subprocess.Popen[bytes]", happened: Callable[[], bool], what: str) -> None:
    until(happened, what)
    process.kill()
    process.wait()


def test_a_promotion_sweep_whose_controller_is_killed_decides_as_an_undisturbed_one(platform: Platform, marked: Marked):
    """One trial at a time, so that the order of what is observed is that of the decisions."""
    more, subject = searched(platform, parallel=1)
    store = open_sweep(subject, more.tiers)
    Controller(store, subject, more.control, more.compute.poll_seconds).run(lambda sweep: None)
    undisturbed = decisions(store)
    assert isinstance(undisturbed[-1], Closed) and undisturbed[-1].outcome == "complete"
    marked.until_gone()
    for folder in (more.home.durable / "sweeps", more.home.jobs):
        shutil.move(folder, more.root / f"undisturbed-{folder.name}")
    for checkpoints in (more.home.durable / "checkpoints").glob(f"{store.sweep}.*"):
        shutil.rmtree(checkpoints)

    again = open_sweep(subject, more.tiers)
    assert again.sweep == store.sweep
    for count in (1, 2, 4):
        process = controlling(more, again, subject)
        paused = lambda: sum(isinstance(event, Paused) for event in again.read()) >= count  # noqa: E731, B023
        killed_when(process, paused, f"{count} trials to pause")
    assert controlling(more, again, subject).wait() == 0
    assert decisions(again) == undisturbed
    must_have_trained_each_step_once(again, state(again))


def test_a_sweep_that_a_person_pauses_frees_its_nodes_and_goes_on_where_it_was(platform: Platform, marked: Marked):
    more, subject = searched(platform, scheduler={"kind": "none"}, trial={**TRIAL, "run.steps": 400})
    store = open_sweep(subject, more.tiers)
    process = controlling(more, store, subject)
    until(lambda: len(marked.running("slipway.trainer")) == 2, "two trials")
    steering.pause(store, "ada", "the nodes are needed")
    until(lambda: [trial for trial in state(store).not_ended if trial.paused_at is not None], "trials to pause")
    until(lambda: not marked.running("slipway.trainer"), "the nodes to be free")
    assert process.poll() is None and state(store).closed is None
    steering.add(store, 1, "ada", "one more")
    steering.resume(store, "ada", "they are free")
    assert process.wait() == 0
    sweep = state(store)
    assert sweep.closed is not None and sweep.closed.outcome == "complete"
    assert len(sweep.trials) == TRIALS + 1
    assert {trial.state for trial in sweep.trials.values()} == {"completed"}
    must_have_trained_each_step_once(store, sweep)


def sealed(platform: Platform) -> ModelRecipe:
    """The recipe with two ranks, each with its share of the weights, whose checkpoints are encrypted."""
    key = platform.root / "key"
    key.write_text("ab" * 32)
    value = platform.recipe.model_dump(mode="json")
    value["storage"]["key_file"] = str(key)
    value["layout"]["shard"] = "full"
    value["placement"]["ranks_per_node"] = 2
    return ModelRecipe.model_validate(value, strict=False)


def test_trials_of_two_ranks_with_shares_of_the_weights_pause_and_go_on_with_every_byte_sealed(
    platform: Platform, marked: Marked
):
    more, subject = searched(platform, sealed(platform), trials=2, parallel=1)
    store = open_sweep(subject, more.tiers)
    sweep = Controller(store, subject, more.control, more.compute.poll_seconds).run(lambda sweep: None)
    assert sweep.closed is not None and sweep.closed.outcome == "complete", sweep.closed
    paused = [event for event in store.read() if isinstance(event, Paused)]
    assert paused and "completed" in {trial.state for trial in sweep.trials.values()}
    for trial in trials_of(store).stores():
        started = [event for event in trial.events() if event["event"] == "started"]
        assert {event["world"] for event in started} == {2}
    must_have_trained_each_step_once(store, sweep)
    files = [path for path in more.home.root.rglob("*") if path.is_file() and store.sweep in str(path)]
    weights = [path for path in files if path.suffix == ".safetensors"]
    assert weights and all(path.read_bytes().startswith(encryption.MAGIC) for path in weights)
    # What a file of tensors begins with in the clear: where each of them lies.
    assert [path for path in files if b'"data_offsets"' in path.read_bytes()] == []
