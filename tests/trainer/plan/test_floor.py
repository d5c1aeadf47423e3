"""The floor: what a rank needs at least, without running the model. It is never above what the model has."""

from typing import Any

import pytest
import torch

from slipway.trainer.config import shapes
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.resnet import ResNetShape
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.plan.verdict import floor, may_not_fit
from tests.trainer.plan.layouts import DECODER, ENCODER, TOKENS, question

PICTURES = Data(picture=(32, 32, 3), classes=10)
VIT = VisionShape(layers=4, width=64, heads=4, hidden=256, patch=4)
GPT2 = DecoderShape(
    layers=2, width=64, heads=4, kv_heads=4, hidden=256, positions="learned", longest=128, activation="gelu", tied=True
)


@pytest.mark.parametrize(
    ("shape", "data"),
    [
        (DECODER, TOKENS),
        (GPT2, TOKENS),
        (ENCODER, TOKENS),
        (VIT, PICTURES),
        (ResNetShape(blocks=(2, 2), width=16, stem="small"), PICTURES),
    ],
    ids=["llama", "gpt2", "encoder", "vit", "resnet"],
)
def test_a_model_has_at_least_the_weights_that_its_shape_says_and_few_more(shape: Shape, data: Data):
    with torch.device("meta"):
        network = shapes.network_of(shape.kind)(shape, data)
    weights = sum(parameter.numel() for parameter in network.parameters())
    assert 0.8 * weights < shape.least_weights(data) <= weights


@pytest.mark.parametrize(("layout", "share"), [({}, 1), ({"shard": "full"}, 4), ({"tensor": 2}, 2)])
def test_each_rank_has_its_share_of_the_state(layout: dict[str, Any], share: int):
    state = DECODER.least_weights(TOKENS) * 16 // share
    assert 0 <= floor(question(ranks=4, **layout)) - state <= 4 * DECODER.least_kept(TOKENS) * 2


def test_only_a_training_that_is_far_below_the_room_needs_no_plan():
    plan_question = question()
    assert not may_not_fit(plan_question, 9 * floor(plan_question))
    assert may_not_fit(plan_question, 7 * floor(plan_question))
