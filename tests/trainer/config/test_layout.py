"""The mesh: which rank holds what, and every layout that does not fit refused with the numbers."""

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config.layout import Mesh, check, in_flight, micro_batches, waiting
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch, Run
from slipway.trainer.config.shapes import Shape
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.resnet import ResNetShape

pytestmark = pytest.mark.pure


@dataclass(frozen=True)
class Settings:
    layout: Layout
    model: Shape = field(default_factory=lambda: DecoderShape(layers=4, width=64, heads=8, kv_heads=4, hidden=128))
    batch: Batch = field(default_factory=lambda: Batch(sequences=64, length=8, micro=2))
    run: Run = field(default_factory=lambda: Run(steps=1))


TWO: dict[str, Any] = {"schedule": "interleaved", "stages_per_rank": 2}
THREE: dict[str, Any] = {**TWO, "stages_per_rank": 3}


def mesh(ranks: int, ranks_per_node: int, **layout: Any) -> Mesh:
    return check(Settings(Layout(**layout)), ranks, ranks_per_node)


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ({}, Mesh(replicas=16)),
        ({"shard": "full"}, Mesh(shards=16)),
        ({"shard": "hybrid"}, Mesh(replicas=2, shards=8)),
        ({"shard": "hybrid", "shard_ranks": 4}, Mesh(replicas=4, shards=4)),
        ({"tensor": 4}, Mesh(replicas=4, tensor=4)),
        ({"shard": "full", "tensor": 2}, Mesh(shards=8, tensor=2)),
        ({"shard": "hybrid", "tensor": 2}, Mesh(replicas=2, shards=4, tensor=2)),
        ({"pipeline": 4}, Mesh(pipeline=4, replicas=4)),
        ({"context": 4}, Mesh(replicas=16, context=4)),
        ({"shard": "full", "tensor": 2, "context": 2}, Mesh(shards=8, tensor=2, context=2)),
        ({"pipeline": 2, "shard": "full", "tensor": 4}, Mesh(pipeline=2, shards=2, tensor=4)),
    ],
)
def test_two_nodes_of_eight_ranks(layout: dict[str, Any], expected: Mesh) -> None:
    assert mesh(16, 8, **layout) == expected


def test_ranks_of_a_node_are_innermost() -> None:
    layout_mesh = Mesh(pipeline=2, replicas=1, shards=2, tensor=2)
    assert [layout_mesh.stage(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [layout_mesh.data_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert [rank for rank in range(8) if layout_mesh.counts_losses(rank)] == [4, 6]


def test_ranks_that_share_a_sequence_are_neighbours_and_all_count_their_tokens() -> None:
    layout_mesh = Mesh(pipeline=2, shards=4, tensor=2, context=2)
    assert [layout_mesh.data_rank(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [layout_mesh.context_rank(rank) for rank in range(8)] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert layout_mesh.context_groups() == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]]
    assert [rank for rank in range(16) if layout_mesh.counts_losses(rank)] == [8, 10, 12, 14]
    assert layout_mesh.data == 2 and layout_mesh.gradient_ranks == 4


def test_every_share_is_cut_into_equally_many_micro_batches() -> None:
    assert [micro_batches(7, 2, shares) for shares in (1, 2, 3, 7)] == [4, 2, 2, 1]


@pytest.mark.parametrize(
    ("ranks", "per_node", "layout", "expected"),
    [
        (6, 6, {"tensor": 4}, "layout.tensor: found 4, expected a divisor of the 6 ranks of a node"),
        (8, 1, {"tensor": 8}, "layout.tensor: found 8, expected a divisor of the 1 ranks of a node (a node is a mach"),
        (8, 8, {"tensor": 8}, "layout.tensor: found 8, expected a divisor of model.kv_heads (4)"),
        (6, 6, {"pipeline": 4}, "layout.pipeline: found 4 (x tensor 1), expected a divisor of 6 ranks"),
        (8, 8, {"pipeline": 8}, "layout.pipeline: found 8, expected 4 at most, the stages"),
        (64, 1, {"pipeline": 2}, "layout.pipeline: found 2, expected 1 at most, the micro-batches of a rank (batch"),
        (2, 2, {"pipeline": 2, **THREE}, "layout.pipeline: found 2 (x stages_per_rank 3), expected 4 at most, the st"),
        (64, 1, {"pipeline": 2, **TWO}, "layout.pipeline: found 2, expected a divisor of 1, the micro-batches of a ra"),
        (2, 2, TWO, "layout.schedule: found interleaved, expected 1f1b, as layout.pipeline is 1"),
        (2, 2, {"pipeline": 2, "schedule": "interleaved"}, "layout.stages_per_rank: found 1, expected 2 or more, as"),
        (2, 2, {"pipeline": 2, "stages_per_rank": 2}, "layout.stages_per_rank: found 2, expected 1, as layout.schedu"),
        (6, 6, {"context": 4}, "layout.context: found 4, expected a divisor of 6, the ranks that are left for each"),
        (6, 6, {"context": 3}, "layout.context: found 3, expected a number whose double (6) divides batch.length (8)"),
        (6, 2, {"shard": "hybrid", "shard_ranks": 4}, "layout.shard_ranks: found 4 ranks a group, expected a divisor"),
        (4, 4, {"shard_ranks": 2}, "layout.shard_ranks: found 2, expected 0, as only hybrid has groups of ranks"),
        (65, 1, {}, "batch.sequences: found 64, expected 65 (a sequence for each rank) or more"),
    ],
)  # fmt: skip
def test_a_layout_that_does_not_fit_is_refused_with_its_numbers(
    ranks: int, per_node: int, layout: dict[str, Any], expected: str
) -> None:
    with pytest.raises(Invalid) as refused:
        mesh(ranks, per_node, **layout)
    assert expected in f"{refused.value.field}: {refused.value}"


def test_gpipe_takes_fewer_micro_batches_than_stages() -> None:
    assert mesh(64, 1, pipeline=2, schedule="gpipe") == Mesh(pipeline=2, replicas=32)


def test_interleaved_stages_need_a_whole_number_of_rounds_of_micro_batches() -> None:
    """64 sequences over 4 ranks in parts of 2 are 8 micro-batches; in parts of 3, 6."""
    four = Layout(pipeline=4, schedule="interleaved", stages_per_rank=2)
    deep = DecoderShape(layers=8, width=64, heads=8, kv_heads=4, hidden=128)
    assert check(Settings(four, deep), 16, 8) == Mesh(pipeline=4, replicas=4)
    with pytest.raises(Invalid, match=re.escape("found 4, expected a divisor of 6, the micro-batches of a rank")):
        check(Settings(four, deep, Batch(sequences=64, length=8, micro=3)), 16, 8)


@pytest.mark.parametrize(
    ("layout", "parts", "share"),
    [
        (Layout(), 8, 0.0),
        (Layout(pipeline=4), 8, 3 / 11),
        (Layout(pipeline=4, schedule="gpipe"), 8, 3 / 11),
        (Layout(pipeline=4, schedule="interleaved", stages_per_rank=3), 8, 1 / 9),
    ],
)
def test_a_rank_of_a_pipeline_waits_less_with_more_stages(layout: Layout, parts: int, share: float) -> None:
    """Of 3 passes that a rank waits and 8 that it does; with three stages, of 1 pass and 8."""
    assert waiting(layout, parts) == pytest.approx(share)


@pytest.mark.parametrize(
    ("layout", "parts", "n_micro_batches"),
    [
        (Layout(), 8, [1]),
        (Layout(pipeline=4), 8, [4, 3, 2, 1]),
        (Layout(pipeline=4), 2, [2, 2, 2, 1]),
        (Layout(pipeline=2, schedule="gpipe"), 8, [8, 8]),
        (Layout(pipeline=4, schedule="interleaved", stages_per_rank=2), 8, [11, 9, 7, 5]),
        (Layout(pipeline=4, schedule="interleaved", stages_per_rank=2), 4, [8, 8, 7, 5]),
    ],
)
def test_the_first_rank_of_a_pipeline_keeps_the_most_activations(
    layout: Layout, parts: int, n_micro_batches: list[int]
) -> None:
    assert [in_flight(layout, stage, parts) for stage in range(layout.pipeline)] == n_micro_batches


@pytest.mark.parametrize(
    ("layout", "changed", "expected"),
    [
        (Layout(tensor=2), {"model": ResNetShape()}, "1, as a model of kind resnet cannot be divided"),
        (Layout(pipeline=2), {"model": ResNetShape()}, "found 2, expected 1 at most, the stages"),
        (Layout(pipeline=2), {"model": EncoderShape(layers=4, width=64, heads=4, hidden=64)}, "expected 1 at most"),
        (
            Layout(pipeline=2),
            {"model": DecoderShape(layers=4, width=64, heads=4, kv_heads=4, hidden=64, tied=True)},
            "as the first and the last stage would share a tied embedding",
        ),
        (Layout(activations="recompute"), {"model": ResNetShape()}, "expected keep"),
        (Layout(context=2), {"model": ResNetShape()}, "1, as a model of kind resnet needs whole sequences"),
    ],
)  # fmt: skip
def test_impossible_layouts_are_refused(layout: Layout, changed: dict[str, Any], expected: str) -> None:
    with pytest.raises(Invalid, match=re.escape(expected)):
        check(Settings(layout, **changed), 4, 4)
