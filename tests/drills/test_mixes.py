"""A training on several datasets through the real daemon: a rank is killed, and one dataset is built anew meanwhile."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.assets import keys, training_data
from slipway.assets.datasets.snapshots import pointer
from slipway.assets.datasets.texts import tokenizer
from slipway.assets.training_commands import start
from slipway.recipes.training import ModelRecipe
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.data import mixtures, snapshots
from tests.drills import process_table, small_recipes
from tests.drills.facts import causes, restored_from, steps
from tests.drills.instance import Instance, training_key
from tests.drills.process_table import kill, wait_until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

BOTH, MORE, STEPS, CHANGE = "both", "more", 120, 60
NOUNS = ("documents", "tokenizer", "snapshot")
MIX = f"mix: {{weights: {{texts: 3, more: 1}}, phases: [{{after_step: {CHANGE}, weights: {{more: 1}}}}]}}"


@pytest.fixture
def instance(tmp_path: Path, own_mark: dict[str, str]) -> Iterator[Instance]:
    """An instance of its own, with two datasets of one tokenizer and a training on both, by two nodes."""
    recipes = small_recipes.write(tmp_path, trial_steps=20)
    texts = [path.read_text() for path in sorted((tmp_path / "corpus").iterdir())]
    (tmp_path / "shared.json").write_bytes(tokenizer.train(iter(texts), 512))
    (tmp_path / MORE).mkdir()
    for number, text in enumerate(texts):
        (tmp_path / MORE / f"{number:03d}.txt").write_text(" ".join(text.split()[::-1]))
    dataset = (recipes / "datasets" / f"{small_recipes.DATASET}.yaml").read_text()
    dataset = dataset.replace("{vocab_size: 512}", "{file: ../../shared.json}")
    (recipes / "datasets" / f"{small_recipes.DATASET}.yaml").write_text(dataset)
    (recipes / "datasets" / f"{MORE}.yaml").write_text(dataset.replace("../../corpus", f"../../{MORE}"))
    training = (recipes / "trainings" / f"{small_recipes.PAIR}.yaml").read_text()
    training = training.replace("steps: 200", f"steps: {STEPS}").replace("every: 25", "every: 50")
    training = training.replace("dataset: texts", MIX).replace("-pair", "-both")
    (recipes / "trainings" / f"{BOTH}.yaml").write_text(training)
    drill_instance = Instance(tmp_path, recipes, own_mark)
    try:
        drill_instance.start()
        yield drill_instance
    finally:
        drill_instance.dispose()


def build(instance: Instance, *datasets: str) -> None:
    run = instance.launch(*(keys.key(dataset, noun) for dataset in datasets for noun in NOUNS))
    wait_until(lambda: instance.succeeded(run), f"{datasets} are made")


def read(training: TrainingStore) -> dict[int, dict[str, float]]:
    """The tokens of each dataset that the ledger has, by step; what is noted twice of a step must be the same."""
    tokens_by_step: dict[int, dict[str, float]] = {}
    for event in training.events():
        if event["event"] == "mixed":
            tokens = {name: dataset["tokens"] for name, dataset in event["datasets"].items()}
            assert tokens_by_step.setdefault(event["step"], tokens) == tokens
    return tokens_by_step


def between_checkpoints(training: TrainingStore) -> bool:
    """Whether it is past the change of its mix, and some steps past its newest checkpoint, which it will do again."""
    done, commits = steps(training), training.commits()
    return bool(done and commits) and done[-1] > CHANGE and done[-1] - commits[-1].step > 2


def test_a_mix_is_read_as_its_weights_say_although_a_rank_dies_and_a_dataset_is_built_anew(
    instance: Instance, tmp_path: Path
):
    build(instance, small_recipes.DATASET, MORE)
    recipe = instance.recipes.trainings[BOTH]
    assert isinstance(recipe, ModelRecipe)
    training = start(recipe, instance.tiers, Tracking(uri=""), "drill")
    began_on = training.specification().snapshot
    assert began_on == training_data.current(recipe, instance.home.durable)
    wait_until(lambda: between_checkpoints(training), "the training is between two checkpoints")
    kill([process_table.ranks(training.id)[-1].pid])

    old = pointer.current(instance.home.durable, MORE)
    (tmp_path / MORE / "100.txt").write_text("something that was not there before")
    build(instance, MORE)
    assert pointer.current(instance.home.durable, MORE) != old
    instance.command("data", "gc", "--keep", "0", "--hours", "0", "--apply")
    assert old in mixtures.sources_of(snapshots.read(instance.home.durable, began_on))

    wait_until(lambda: training.id not in instance.open_trainings(), "the training is at its end")
    ended = training.exit()
    assert ended is not None and (ended.outcome, ended.step) == ("succeeded", STEPS)
    assert causes(training) == ["first start"] and (restored_from(training, 1) or 0) > 0
    _did_the_same_again(training)
    samples = recipe.batch.sequences * recipe.batch.length
    texts, more = CHANGE * samples * 3 // 4, CHANGE * samples // 4 + (STEPS - CHANGE) * samples
    assert read(training)[STEPS] == {small_recipes.DATASET: texts, MORE: more}
    materializations = instance.materializations(training_key(training), training.id)
    assert len(materializations) == 1 and f"{more:,}" in str(materializations[0].metadata["datasets"].value)


def _did_the_same_again(training: TrainingStore) -> None:
    """The steps between the checkpoint and the kill had the losses that they had before: their samples are the same."""
    losses: dict[int, list[float]] = {}
    for event in training.events():
        if event["event"] == "step":
            losses.setdefault(event["step"], []).append(event["loss"])
    again = {step: values for step, values in losses.items() if len(values) > 1}
    assert again and set(losses) == set(range(1, STEPS + 1))
    for first, *others in again.values():
        assert others == [pytest.approx(first, rel=1e-4)] * len(others)
