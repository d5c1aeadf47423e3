"""The example recipes: each is valid, and each model has the size that its paper or its makers give."""

from pathlib import Path

import pytest
import torch

from slipway import recipes
from slipway.recipes.dataset import DatasetRecipe
from slipway.recipes.load import Recipes, load
from slipway.recipes.plan import planned
from slipway.recipes.training import ModelRecipe
from slipway.trainer import models
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder.presets import PRESETS
from slipway.trainer.plan import stages
from slipway.trainer.plan.verdict import judge

FOLDER = Path(recipes.__file__).parent / "examples"
PUBLISHED = {
    "gpt2-124m": PRESETS["gpt2"].parameters,
    "llama-7b": 6_738_415_616,
    "llama-8b": 8_030_261_248,
    "llama-13b": 13_015_864_320,
    "llama-70b": 70_553_706_496,
    "llama-405b": 405_853_388_800,
    # The 1,235,814,400 of Llama 3.2 1B, whose head is its embedding.
    "llama-1b": 1_235_814_400 + 128_256 * 2048,
    # What `transformers` counts of BertForMaskedLM, without the embeddings of the two segments.
    "bert-base": 109_514_298 - 2 * 768,
    "bert-large": 335_174_458 - 2 * 1024,
    # As torchvision lists them.
    "resnet-50": 25_557_032,
    "resnet-152": 60_192_808,
    "vit-base": 86_567_656,
}
UNPUBLISHED = {"llama-1m": 857_216}
DAILY = ("gpt2-124m", "llama-70b", "bert-base", "resnet-50")
"""One of each kind, and one that is divided over 64 GPUs: the plans of the others are made each night."""


@pytest.fixture(scope="module")
def examples() -> Recipes:
    return load(FOLDER, {})


def data_of(training: ModelRecipe, dataset: DatasetRecipe) -> Data:
    if dataset.images is None:
        return Data(vocabulary=dataset.tokenizer.vocab_size, length=training.batch.length)
    return Data(picture=(dataset.images.height, dataset.images.width, dataset.images.channels), classes=1000)


def test_every_example_is_named_here(examples: Recipes) -> None:
    assert set(examples.trainings) == PUBLISHED.keys() | UNPUBLISHED.keys()


@pytest.mark.parametrize(("name", "parameters"), [*PUBLISHED.items(), *UNPUBLISHED.items()])
def test_a_model_has_as_many_parameters_as_was_published(examples: Recipes, name: str, parameters: int) -> None:
    """Nothing is allocated."""
    training = examples.trainings[name]
    with torch.device("meta"):
        model = models.build(training.model, data_of(training, examples.datasets[training.datasets[0]]))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(example, marks=() if example in DAILY else pytest.mark.nightly)
        for example in [*PUBLISHED, *UNPUBLISHED]
    ],
)
def test_an_example_fits_the_hardware_that_it_is_for(examples: Recipes, name: str) -> None:
    """Measured with fake ranks at the example's own layout and number of GPUs."""
    plan = planned(examples, name, "h200-32")
    verdict = judge(plan.question, stages.measure(plan.question), plan.room, examples.trainings[name].storage)
    assert verdict.fits, verdict.problems


def test_the_70b_is_laid_out_over_a_nodes_gpus_and_eight_shares_of_the_batch(examples: Recipes) -> None:
    """Tensor parallel 8 in the node x data parallel 8, 4 sequences of 4,096 tokens each in bf16."""
    training = examples.trainings["llama-70b"]
    assert (training.layout.tensor, training.layout.shard, training.layout.activations) == (8, "full", "recompute")
    assert (training.placement.nodes.max, training.placement.ranks_per_node) == (8, 8)
    assert (training.batch.sequences, training.batch.length, training.batch.micro) == (32, 4096, 4)
    assert training.run.precision == "bf16"


@pytest.mark.parametrize(("name", "billions"), [("resnet-50", 4.1), ("resnet-152", 11.5)])
def test_a_residual_network_multiplies_as_often_as_was_published(examples: Recipes, name: str, billions: float) -> None:
    """Forward, a third of all; torchvision lists 4.09 and 11.51 billion (an addition with each, so twice the flops)."""
    training = examples.trainings[name]
    with torch.device("meta"):
        model = models.build(training.model, data_of(training, examples.datasets[training.datasets[0]]))
    assert model.flops_per_sample / 6e9 == pytest.approx(billions, rel=0.02)
