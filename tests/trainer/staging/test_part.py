"""Parts: the nodes of a snapshot share it out evenly, and a node that leaves moves its own shards alone."""

import json
import math

import pytest

from slipway.trainer.base import digest
from slipway.trainer.data import shards
from slipway.trainer.staging.parts import WHOLE_SNAPSHOT, SnapshotPart
from slipway.trainer.staging.stage import is_staged, stage
from tests.trainer.staging.folders import assert_nothing_wrong_is_visible, staging_process

pytestmark = pytest.mark.pure

NODES = tuple(f"node-{number}" for number in range(32))


def many(count: int) -> list[shards.TokenShard]:
    return [shards.TokenShard(digest.of_bytes(str(number).encode()), 1, 1, 1) for number in range(count)]


def test_every_shard_belongs_to_one_node_in_any_order_of_the_nodes():
    every = many(1000)
    parts = [SnapshotPart(node, NODES).of(every) for node in NODES]
    assert sorted(shard.blake3 for part in parts for shard in part) == sorted(shard.blake3 for shard in every)
    assert parts[3] == SnapshotPart(NODES[3], tuple(reversed(NODES))).of(every)


@pytest.mark.parametrize(("count", "nodes"), [(100, 2), (1000, 7), (8000, 32), (64, 32)])
def test_no_node_has_more_than_the_bound_says(count: int, nodes: int):
    mean, log = count / nodes, math.log(nodes / 1e-6)
    most = max(len(SnapshotPart.numbered(index, nodes).of(many(count))) for index in range(nodes))
    assert most <= mean + math.sqrt(2 * log * mean) + log


def test_when_a_node_leaves_only_its_shards_move():
    every = many(1000)
    for node in NODES[1:]:
        before = set(SnapshotPart(node, NODES).of(every))
        assert before <= set(SnapshotPart(node, NODES[1:]).of(every))


def test_the_whole_is_everything():
    assert WHOLE_SNAPSHOT.of(many(10)) == many(10)


@pytest.mark.parametrize(
    ("node", "nodes", "message"),
    [("c", ("a", "b"), "expected one of a, b"), ("a", ("a", "a"), "expected each node once")],
)
def test_a_node_outside_the_list_is_refused(node, nodes, message):
    with pytest.raises(ValueError, match=message):
        SnapshotPart(node, nodes)


def test_a_node_stages_its_part_and_two_parts_are_the_whole(snapshot, durable, nvme):
    first, second = SnapshotPart.numbered(0, 2), SnapshotPart.numbered(1, 2)
    staged = stage(snapshot.sha256, durable, nvme, part=first)
    assert staged.shards == len(first.of(snapshot.shards())) in range(1, 4)
    assert is_staged(snapshot.sha256, nvme, first) and not is_staged(snapshot.sha256, nvme)
    assert_nothing_wrong_is_visible(nvme)
    stage(snapshot.sha256, durable, nvme, part=second)
    assert is_staged(snapshot.sha256, nvme)


@pytest.mark.process
def test_the_command_stages_the_part_of_a_node(snapshot, durable, nvme):
    process = staging_process(snapshot.sha256, [durable], nvme, "--node", "b", "--nodes", "a,b,c")
    out, _ = process.communicate()
    assert json.loads(out)["shards"] == len(SnapshotPart("b", ("a", "b", "c")).of(snapshot.shards())) < 4
