"""The verdict: what was measured, compared with the hardware. Arithmetic alone."""

import dataclasses

import pytest

from slipway.trainer.base.units import GIB
from slipway.trainer.config import profiles
from slipway.trainer.config.operation import Storage
from slipway.trainer.plan import room
from slipway.trainer.plan.measure import StageMeasure
from slipway.trainer.plan.verdict import judge
from tests.trainer.plan.layouts import question

pytestmark = pytest.mark.pure

ROOM = room.of_profile(profiles.named("h200-32"))
MEASURE = StageMeasure(
    stage=0,
    ranks=8,
    blocks=8,
    peaks={
        "activations": {"weights": 10 * GIB, "gradients": 10 * GIB, "optimizer": 20 * GIB, "activations": 40 * GIB},
        "update": {"weights": 10 * GIB, "gradients": 10 * GIB, "optimizer": 20 * GIB, "update": GIB},
    },
    parameters=20 * GIB,
    checkpoint=240 * GIB,
    trained=10 * GIB,
    divided=40 * GIB,
    sent={"shards": 5 * GIB},
)
QUESTION = question(ranks=8, shard="full", batch=(64, 8))


def test_a_rank_needs_its_highest_peak_and_the_margins():
    [stage] = judge(QUESTION, [MEASURE], ROOM, Storage()).stages
    margins = {name: stage.parts[name] for name in ("context", "nccl", "fragments")}
    assert stage.needed == 80 * GIB + sum(margins.values()) and all(margins.values())
    assert stage.spare == ROOM.rank_bytes - stage.needed > 0


def test_what_does_not_fit_is_said_with_the_bytes_that_are_missing():
    large = dataclasses.replace(MEASURE, peaks={"logits": {"logits": 200 * GIB}})
    verdict = judge(QUESTION, [large], ROOM, Storage())
    assert not verdict.fits
    assert verdict.problems[0] == "a rank needs 212.0 GiB, and has 140.0 GiB: 72.0 GiB too much"


def test_a_node_holds_two_checkpoints_of_its_ranks_in_pinned_memory():
    verdict = judge(QUESTION, [MEASURE], ROOM, Storage())
    assert verdict.host.buffers == 2 * 240 * GIB
    assert not verdict.fits and verdict.problems == [
        "a node's processes need 520.0 GiB of memory (480.0 GiB for checkpoints), and have 512.0 GiB"
    ]


def test_the_nvme_holds_the_checkpoints_that_are_kept_and_one_that_is_written():
    host = judge(QUESTION, [MEASURE], ROOM, Storage()).host
    assert host.nvme_needed == 3 * 240 * GIB and host.nvme_spare == 10**12 - host.nvme_needed


def test_each_of_several_nodes_holds_its_part_of_a_checkpoint_and_a_copy_of_anothers():
    two = judge(dataclasses.replace(QUESTION, nodes=2), [MEASURE], ROOM, Storage()).host
    assert two.nvme_needed == 3 * 2 * (240 * GIB // 2)


def test_the_fewest_gpus_divide_the_steady_part_until_it_fits():
    """40 GiB over 8 ranks are 320 GiB in all; beside 40 GiB of activations and the margins, 96 GiB are left for it."""
    assert judge(QUESTION, [MEASURE], ROOM, Storage()).least_gpus == 4


def test_the_fewest_gpus_are_whole_nodes_when_one_node_is_not_enough():
    """Nodes of three GPUs: four GPUs would be enough, and two nodes have six."""
    plan_question = dataclasses.replace(
        QUESTION, nodes=2, ranks_per_node=3, batch=dataclasses.replace(QUESTION.batch, sequences=48)
    )
    assert judge(plan_question, [dataclasses.replace(MEASURE, divided=60 * GIB)], ROOM, Storage()).least_gpus == 6


@pytest.mark.parametrize(
    ("nodes", "ranks", "message"),
    [
        (256, 8, "256 GPUs are 32 nodes"),
        (33, 8, "expected 32 at most, as h200-32 has 32 nodes of 8 GPUs"),
        (32, 256, "found 256, expected 8 at most"),
    ],
)
def test_gpus_that_are_given_as_nodes_are_refused_with_the_number_of_nodes(nodes: int, ranks: int, message: str):
    with pytest.raises(ValueError, match=message):
        profiles.named("h200-32").check_nodes(nodes, ranks, "placement.nodes")


def test_an_unknown_profile_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match=r"^found the hardware profile 'h300', expected one of h200-32, h100-8$"):
        profiles.named("h300")
