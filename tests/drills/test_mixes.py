"""A training on several datasets through the real daemon, of which one is built anew and collected while it trains."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assets import keys, training_data
from assets.datasets.snapshots import pointer
from assets.datasets.texts import tokenizer
from assets.start import start
from resources.mlflow.tracking import Tracking
from tests.drills import small_recipes
from tests.drills.facts import steps
from tests.drills.instance import Instance
from tests.drills.process_table import wait_until
from trainer.data import mixtures, snapshots

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

BOTH, MORE, STEPS = "both", "more", 60
NOUNS = ("documents", "tokenizer", "snapshot")
MIX = f"mix: {{weights: {{texts: 3, more: 1}}, phases: [{{after_step: {STEPS // 2}, weights: {{more: 1}}}}]}}"


@pytest.fixture
def instance(tmp_path: Path, own_mark: dict[str, str]) -> Iterator[Instance]:
    """An instance of its own, with two datasets of one tokenizer and a training on both."""
    recipes = small_recipes.write(tmp_path, trial_steps=20)
    texts = [path.read_text() for path in sorted((tmp_path / "corpus").iterdir())]
    (tmp_path / "shared.json").write_bytes(tokenizer.train(iter(texts), 512))
    (tmp_path / MORE).mkdir()
    for number, text in enumerate(texts):
        (tmp_path / MORE / f"{number:03d}.txt").write_text(" ".join(text.split()[::-1]))
    dataset = (recipes / "datasets" / "texts.yaml").read_text()
    dataset = dataset.replace("{vocab_size: 512}", "{file: ../../shared.json}")
    (recipes / "datasets" / "texts.yaml").write_text(dataset)
    (recipes / "datasets" / f"{MORE}.yaml").write_text(dataset.replace("../../corpus", f"../../{MORE}"))
    training = (recipes / "trainings" / f"{small_recipes.ALONE}.yaml").read_text()
    (recipes / "trainings" / f"{BOTH}.yaml").write_text(
        training.replace("dataset: texts", MIX).replace("-alone", "-both")
    )
    made = Instance(tmp_path, recipes, own_mark)
    try:
        made.start()
        yield made
    finally:
        made.dispose()


def build(instance: Instance, *datasets: str) -> None:
    run = instance.launch(*(keys.key(dataset, noun) for dataset in datasets for noun in NOUNS))
    wait_until(lambda: instance.succeeded(run), f"{datasets} are made")


def test_a_mix_is_trained_to_its_end_on_what_its_datasets_were_when_it_began(instance: Instance, tmp_path: Path):
    build(instance, small_recipes.DATASET, MORE)
    recipe = instance.recipes.trainings[BOTH].model_copy(
        update={"run": instance.recipes.trainings[BOTH].run.model_copy(update={"steps": STEPS})}  # type: ignore[union-attr]
    )
    training = start(recipe, instance.tiers, Tracking(uri=""), "drill")
    began_on = training.specification().snapshot
    assert began_on == training_data.current(recipe, instance.home.durable)
    wait_until(lambda: steps(training), "the training is at its first step")

    old = pointer.current(instance.home.durable, MORE)
    (tmp_path / MORE / "100.txt").write_text("something that was not there before")
    build(instance, MORE)
    assert pointer.current(instance.home.durable, MORE) != old
    instance.command("data", "gc", "--keep", "0", "--hours", "0", "--apply")
    assert old in mixtures.sources_of(snapshots.read(instance.home.durable, began_on))

    ended = wait_until(training.exit, "the training ends")
    assert (ended.outcome, ended.step) == ("complete", STEPS)
    assert steps(training) == list(range(1, STEPS + 1))
    read = [event["datasets"] for event in training.events() if event["event"] == "mixed"][-1]
    tokens = {name: each["tokens"] for name, each in read.items()}
    # A quarter of the first half is of the one, and all of the second half.
    assert tokens[MORE] / sum(tokens.values()) == pytest.approx(5 / 8, abs=0.02)
