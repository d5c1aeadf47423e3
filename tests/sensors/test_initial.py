"""Initial weights in the graph: located before a training is proposed, part of its id, refused before it runs."""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from slipway.assets import holdout_filter, keys
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.initial import with_initial_weights
from slipway.assets.training import run_policy, specification
from slipway.recipes.dataset import SplitSection
from slipway.recipes.initial import InitSection
from slipway.recipes.training import ModelRecipe
from slipway.resources.mlflow.registry import CHAMPION, MANIFEST_TAG, Registry
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.checkpoint.disk import progress
from slipway.trainer.data.shards import read_manifest
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.start import export, huggingface
from tests.assets.datasets.builds import build
from tests.sensors.platform import EVERY, STEPS, TINY, Platform

MODEL = "tiny-model"


def starting(platform: Platform, **init: Any) -> ModelRecipe:
    """The recipe with a section `init`, and with validation, so that the first loss is on record."""
    value = {**platform.recipe.model_dump(mode="json"), "init": init}
    value["run"]["steps"], value["validation"] = 2, {"every": 2, "sequences": 4}
    return ModelRecipe.model_validate(value, strict=False)


def settle(platform: Platform, recipe: ModelRecipe) -> ModelRecipe:
    return with_initial_weights(recipe, current(platform), platform.tiers, platform.tracking)


def settled_init(platform: Platform, **init: Any) -> InitSection:
    init_section = settle(platform, starting(platform, **init)).init
    assert init_section is not None
    return init_section


def current(platform: Platform) -> str:
    sha256 = pointer.current(platform.home.durable, "texts")
    assert sha256 is not None
    return sha256


def exported(platform: Platform, store: TrainingStore) -> Path:
    """The finished training's last checkpoint in the Hugging Face layout, with the durable tier's tokenizer."""
    folder = platform.root / "llama"
    export.export(platform.home.durable / store.commits()[-1].folder, folder)
    return folder


def registered(platform: Platform) -> str:
    """Have the finished training's best checkpoint registered and promoted; its manifest."""
    both = [keys.key(TINY, "candidate"), keys.key(TINY, "champion")]
    assert platform.materialize(both, platform.finished().id).success
    version = Registry(platform.tracking, platform.home.durable).aliased(MODEL, CHAMPION)
    assert version is not None
    return version.tags[MANIFEST_TAG]


def move_the_alias(platform: Platform) -> None:
    """Have MLflow's alias of the champion name a version that was never promoted, as its UI lets anyone do."""
    registry = Registry(platform.tracking, platform.home.durable)
    other = registry.register(MODEL, platform.home.durable / "checkpoints", "", {MANIFEST_TAG: "never promoted"})
    registry.point(MODEL, CHAMPION, other.number)


def test_a_recipe_that_draws_its_weights_stays_as_it_is(platform: Platform):
    assert settle(platform, platform.recipe) is platform.recipe


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["checkpoint", "huggingface"])
def test_a_training_that_is_offered_with_given_weights_trains_from_them(platform: Platform, layout: str):
    first = platform.finished()
    location = f"{first.id}/{STEPS}" if layout == "checkpoint" else str(exported(platform, first))
    recipe = settle(platform, starting(platform, **{layout: location}))
    store = platform.trainings.propose(specification(recipe, current(platform), platform.tiers), run_policy(recipe))
    platform.trainings.start(store, "test", "the test wants it")
    platform.advance(store)
    loss = [event["loss"] for event in store.events() if event["event"] == "step"]
    before = [event["loss"] for event in first.events() if event["event"] == "step"]
    assert [event["digest"] for event in store.events() if event["event"] == "initialized"]
    progress_record = progress.read(platform.home.durable / store.commits()[-1].folder)
    known = [first.specification().snapshot] if layout == "checkpoint" else None
    assert recipe.init is not None
    assert progress_record.lineage["initial"] == {"digest": recipe.init.digest, "snapshots": known}
    assert loss[0] < before[0] - 1


def test_the_weights_are_part_of_the_id_and_their_place_is_not(platform: Platform):
    folder = exported(platform, platform.finished())
    copy = Path(shutil.copytree(folder, platform.root / "moved"))
    original, there = (settle(platform, starting(platform, huggingface=str(location))) for location in (folder, copy))
    drawn = original.model_copy(update={"init": None})
    ids = [specification(recipe, current(platform), platform.tiers).id for recipe in (original, there, drawn)]
    assert ids[0] == ids[1] != ids[2]
    assert [run_policy(recipe).init for recipe in (original, there, drawn)] == [str(folder), str(copy), ""]


def test_a_step_of_a_training_is_the_checkpoint_that_it_committed(platform: Platform):
    store = platform.finished()
    commit = next(commit for commit in store.commits() if commit.step == EVERY)
    init_section = settled_init(platform, checkpoint=f"{store.id}/{EVERY}")
    assert (init_section.digest, init_section.folder) == (commit.manifest, str(platform.home.durable / commit.folder))


@pytest.mark.slow
def test_a_registered_model_is_the_checkpoint_of_its_version_and_another_is_refused(tracked: Platform):
    manifest = registered(tracked)
    move_the_alias(tracked)
    for named in ({}, {"version": 1}, {"alias": CHAMPION}):
        assert settled_init(tracked, model=MODEL, **named).digest == manifest
    with pytest.raises(ValueError, match=rf"init: found no registered model nope, expected one of {MODEL}"):
        settled_init(tracked, model="nope")
    with pytest.raises(ValueError, match=rf"model {MODEL}: found no version 7, expected a version that Slipway"):
        settled_init(tracked, model=MODEL, version=7)
    with pytest.raises(ValueError, match=rf"model {MODEL}: found no alias best, expected"):
        settled_init(tracked, model=MODEL, alias="best")


def test_what_the_weights_were_trained_on_is_not_held_out_from_the_training_that_begins_with_them(platform: Platform):
    first, dataset = platform.finished(), platform.recipes.datasets["texts"]
    larger = dataset.model_copy(update={"split": SplitSection(validation=0.5)})
    older, newer = current(platform), build(larger, platform.home.durable)
    recipe = settle(platform, starting(platform, checkpoint=f"{first.id}/{STEPS}"))
    training_specification = specification(recipe, newer.sha256, platform.tiers)
    held_out = read_manifest(platform.home.durable, training_specification.snapshot)
    assert held_out.source[holdout_filter.LEFT_OUT_KEY]["seen"] == [older]
    assert 0 < held_out.splits["validation"].documents < newer.splits["validation"].documents
    drawn = specification(recipe.model_copy(update={"init": None}), newer.sha256, platform.tiers)
    assert drawn.snapshot == newer.sha256


def test_a_step_that_was_not_committed_is_refused_with_those_that_were(platform: Platform):
    store = platform.finished()
    with pytest.raises(ValueError, match=rf"no checkpoint {store.id}/7, expected one of .*: 50, 100, 150"):
        settled_init(platform, checkpoint=f"{store.id}/7")


def test_weights_that_differ_from_the_recipes_digest_are_refused(platform: Platform):
    folder = exported(platform, platform.finished())
    with pytest.raises(ValueError, match=rf"{folder}: found the digest .* expected {'a' * 64}"):
        settled_init(platform, huggingface=str(folder), digest="a" * 64)


def test_a_model_of_another_size_is_refused_with_the_numbers(platform: Platform):
    recipe = starting(platform, checkpoint=f"{platform.finished().id}/{STEPS}")
    assert isinstance(recipe.model, DecoderShape)
    larger = recipe.model_copy(update={"model": dataclasses.replace(recipe.model, layers=3)})
    with pytest.raises(
        ValueError, match=r"training tiny: init: .* do not fit the training: model.layers: found 2, expected 3"
    ):
        settle(platform, larger)


def test_a_model_with_another_tokenizer_of_the_same_size_is_refused_by_its_first_token(platform: Platform):
    folder = exported(platform, platform.finished())
    path = folder / huggingface.TOKENIZER
    path.write_text(path.read_text().replace("<|endofdocument|>", "</s>"))
    with pytest.raises(ValueError, match=r"the tokenizer differs from the snapshot's: token \d+ is '</s>' in one"):
        settled_init(platform, huggingface=str(folder))


def test_weights_that_are_missing_keep_a_recipe_from_being_offered_and_no_other(platform: Platform):
    with pytest.raises(ValueError, match=r"training tiny: init: /nowhere/llama: found neither model.safetensors"):
        settle(platform, starting(platform, huggingface="/nowhere/llama"))
    folder = platform.root / "recipes" / "trainings"
    (folder / "absent.yaml").write_text((folder / f"{TINY}.yaml").read_text() + "init: {huggingface: /nowhere/llama}\n")
    again = Platform(platform.root, platform.instance)
    again.apply("offers")
    assert again.partitions(keys.training_partitions("absent")) == []
    assert again.partitions(keys.training_partitions(TINY)) == [platform.finished().id]
