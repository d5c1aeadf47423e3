"""Copies: one flipped bit on one rank is found, and the rank is named; parts that differ by right are not compared."""

import pytest
import torch
from torch import nn

from slipway.trainer.config.layout import Mesh
from slipway.trainer.node.world import World
from slipway.trainer.step.parallel import copies
from tests.trainer import gang

SAME = [7, 0, 0, 0]
OTHER = [8, 0, 0, 0]


def flipped_on(world: World, rank: int) -> str:
    """What the check says where one bit of one weight is flipped on a rank."""
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    if world.rank == rank:
        model.weight.detach().view(torch.int32)[3, 5] ^= 1 << 11
    try:
        copies.check(model, world, 500, f"node-{world.rank}")
    except copies.Drifted as error:
        return str(error)
    return ""


def test_a_flipped_bit_is_found_on_every_rank_and_its_rank_named():
    messages = gang.run(3, flipped_on, 2)
    assert len(set(messages)) == 1
    assert messages[0].startswith("the weights of ranks 2 (node-2) differ after step 500")


def test_copies_that_are_the_same_pass():
    assert gang.run(2, flipped_on, 5) == ["", ""]


def test_of_two_that_differ_neither_is_believed():
    assert copies.differing([SAME, OTHER], Mesh(replicas=2)) == [0, 1]


def test_most_ranks_are_believed():
    assert copies.differing([SAME, OTHER, SAME, SAME], Mesh(replicas=4)) == [1]


def test_shards_and_stages_are_not_compared_with_one_another():
    assert copies.differing([[0, 1, 0, 0], [0, 2, 0, 0]], Mesh(shards=2)) == []
    assert copies.differing([SAME, OTHER], Mesh(pipeline=2)) == []
    assert copies.differing([[7, 0, 1, 0], [7, 0, 2, 0]], Mesh(tensor=2)) == []


def test_the_same_shard_of_two_replicas_is_compared():
    first, second = [0, 1, 0, 0], [0, 2, 0, 0]
    assert copies.differing([first, second, first, second], Mesh(replicas=2, shards=2)) == []
    assert copies.differing([first, second, first, [0, 3, 0, 0]], Mesh(replicas=2, shards=2)) == [1, 3]


def test_what_tensor_parallel_ranks_hold_whole_is_compared():
    assert copies.differing([[7, 0, 1, 0], [8, 0, 2, 0]], Mesh(tensor=2)) == [0, 1]


def test_a_rank_alone_has_nothing_to_compare():
    assert flipped_on(World(0, 1, 0, torch.device("cpu")), 0) == ""


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_every_element_type_has_a_sum_that_one_bit_changes(kind: torch.dtype):
    model = nn.Linear(8, 8, bias=False, dtype=kind)
    before = copies.sums(model, torch.device("cpu")).tolist()
    model.weight.detach().view(torch.uint8)[0, 0] ^= 1
    assert copies.sums(model, torch.device("cpu")).tolist() != before
