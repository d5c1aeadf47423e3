"""Size: how many ranks an evaluation takes, from the shapes of a checkpoint's tensors and the hardware."""

import dataclasses
from typing import Any

import pytest

from slipway.resources.short_jobs import size
from slipway.resources.short_jobs.size import CheckpointSize
from slipway.trainer.checkpoint.disk.manifest import TensorEntry
from slipway.trainer.config import profiles
from slipway.trainer.config.evaluating import RankPlaces
from slipway.trainer.config.operation import Evaluation
from slipway.trainer.config.shapes import type_of
from slipway.trainer.models.decoder.presets import PRESETS
from slipway.trainer.plan import room

pytestmark = pytest.mark.pure

H200 = room.of_profile(profiles.named("h200-32"))


def llama(preset: str, **layout: Any) -> CheckpointSize:
    """A checkpoint of a published decoder, by the shapes of its tensors."""
    shape = PRESETS[preset].shape
    kv = shape.width // shape.heads * shape.kv_heads
    block = {
        "attention": (2 * shape.width + 2 * kv, shape.width),
        "feed_forward": (3 * shape.hidden, shape.width),
    }
    tensors = {f"model/blocks.{n}.{name}": s for n in range(shape.layers) for name, s in block.items()}
    tensors |= {f"model/{name}.weight": (128_256, shape.width) for name in ("embedding", "head")}
    tensors |= {f"optimizer/{name}": tensor_shape for name, tensor_shape in tensors.items()}
    settings = {"model": dataclasses.asdict(shape), "batch": {"length": 8192}, "run": {}, "layout": layout}
    assert isinstance(shape, type_of("decoder"))
    return size.of_tensors(
        settings, {name: TensorEntry("F32", tensor_shape, ()) for name, tensor_shape in tensors.items()}
    )


def test_weights_are_counted_without_the_optimiser() -> None:
    assert llama("llama-3.1-8b").weights == pytest.approx(4 * 8.03e9, rel=0.01)


@pytest.mark.parametrize(("preset", "ranks"), [("llama-3.1-8b", 1), ("llama-3.1-70b", 4), ("llama-3.1-405b", 24)])
def test_an_evaluation_takes_the_fewest_gpus_that_have_room(preset: str, ranks: int) -> None:
    placement = size.choose_ranks(llama(preset), Evaluation(), 32, 8, H200)
    assert placement is not None and placement.ranks == ranks


def test_small_weights_are_for_one_process_unless_ranks_are_asked_for() -> None:
    small = dataclasses.replace(llama("llama-3.1-8b"), weights=2_000_000_000)
    assert size.choose_ranks(small, Evaluation(), 2, 8, H200) is None
    assert size.choose_ranks(small, Evaluation(process_gigabytes=1.0), 2, 8, H200) == RankPlaces(1, 1)
    assert size.choose_ranks(small, Evaluation(ranks=2, tensor=2), 2, 8, H200) == RankPlaces(1, 2)


def test_what_cannot_fit_is_refused_with_the_numbers_and_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"^evaluation: weights of 1,6\d\d\.\d\d GB do not fit h200-32; of 1 ranks, "
    ) as big:
        size.choose_ranks(llama("llama-3.1-405b"), Evaluation(), 1, 8, H200)
    assert "of 8 ranks, each needs" in str(big.value) and "allow more nodes (placement.nodes.max)" in str(big.value)
    with pytest.raises(ValueError, match=r"use more ranks \(evaluation.ranks\)"):
        size.choose_ranks(llama("llama-3.1-70b"), Evaluation(ranks=1), 1, 8, H200)


def test_on_unknown_hardware_an_evaluation_takes_the_ranks_that_hold_one_copy_in_training() -> None:
    alone = size.choose_ranks(llama("llama-3.1-8b"), Evaluation(), 4, 8, None)
    divided = size.choose_ranks(llama("llama-3.1-70b", shard="full", tensor=8), Evaluation(), 4, 8, None)
    assert (alone, divided) == (RankPlaces(1, 1), RankPlaces(1, 8))


def test_pods_ask_for_as_many_gpus_as_they_have_ranks() -> None:
    section = {"resources": {"nvidia.com/gpu": "8", "cpu": "16"}, "priority": "low"}
    assert size.with_gpus(section, 2) == {"resources": {"nvidia.com/gpu": "2", "cpu": "16"}, "priority": "low"}
    assert size.with_gpus({"priority": "low"}, 2) == {"priority": "low"}
