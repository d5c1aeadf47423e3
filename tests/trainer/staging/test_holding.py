"""What of a snapshot each node of a training holds: chosen by sizes, refused with the sizes."""

from collections import Counter

import pytest

from slipway.trainer.base import digest
from slipway.trainer.data.shards import ShardFile
from slipway.trainer.staging import parts
from slipway.trainer.staging.holding import SnapshotNeed, choose

MB = 10**6
SHARDS = [ShardFile(digest.of_bytes(f"{number}".encode()), MB) for number in range(64)]
NEED = SnapshotNeed(total=65 * MB, divided=64 * MB, pinned=MB, window=3 * MB, largest=MB)


def rooms(count: int, megabytes: float) -> dict[str, int]:
    return {f"node-{number}": int(megabytes * MB) for number in range(count)}


@pytest.mark.parametrize(
    ("nodes", "megabytes", "kind"),
    [(4, 65, "whole"), (1, 65, "whole"), (4, 24, "parts"), (2, 24, "window"), (1, 24, "window")],
)
def test_auto_takes_the_first_that_fits_of_whole_parts_and_window(nodes: int, megabytes: int, kind: str) -> None:
    holding = choose("auto", NEED, rooms(nodes, megabytes), SHARDS)
    assert holding.kind == kind and holding.moves == (kind != "whole")
    assert "the snapshot has 65.0 MB" in holding.why


def test_the_earlier_name_of_whole_is_understood() -> None:
    assert choose("before", NEED, rooms(1, 65)).kind == "whole"


@pytest.mark.parametrize(
    ("staging", "nodes", "megabytes", "message"),
    [
        ("whole", 4, 64.9, "found whole, but the snapshot has 65.0 MB, and the least room is 64.9 MB .NVMe of node-0"),
        ("streaming", 4, 24, "found streaming, but the snapshot has 65.0 MB.*expected parts, window or auto"),
        (
            "parts",
            2,
            24,
            "found parts, but 64.0 MB of shards do not fit into the 48.0 MB of 2 nodes together with 4.0 MB",
        ),
        ("window", 4, 3.9, "3.9 MB of room on the NVMe of node-0, expected 4.0 MB or more: the steps in progress read"),
        (
            "auto",
            4,
            0.9,
            "found auto with 900.0 kB of room.*expected 4.0 MB or more: the largest shard alone has 1.0 MB",
        ),
    ],
)
def test_what_cannot_work_is_refused_with_the_sizes(staging, nodes: int, megabytes: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(staging, NEED, rooms(nodes, megabytes), SHARDS)


def test_no_node_keeps_more_than_it_has_room_for() -> None:
    room = {"large": 40 * MB, "small": 6 * MB, "middle": 19 * MB}
    keepers = parts.divide(SHARDS, room)
    assert keepers is not None and keepers.keys() == {shard.blake3 for shard in SHARDS}
    for node, count in Counter(keepers.values()).items():
        assert count * MB <= room[node]


def test_nodes_with_room_enough_keep_the_parts_of_rendezvous_hashing() -> None:
    names = tuple(rooms(4, 100))
    keepers = parts.divide(SHARDS, rooms(4, 100))
    assert keepers is not None
    for name in names:
        digests = [shard.blake3 for shard in parts.SnapshotPart(name, names).of(SHARDS)]
        assert sorted(digests) == sorted(shard for shard, node in keepers.items() if node == name)


def test_when_a_node_leaves_only_its_own_shards_move() -> None:
    four, three = (parts.divide(SHARDS, rooms(count, 100)) for count in (4, 3))
    assert four is not None and three is not None
    assert {shard for shard in four if four[shard] != three[shard]} == {
        shard for shard, node in four.items() if node == "node-3"
    }


def test_shards_that_fit_together_nowhere_are_not_divided() -> None:
    assert parts.divide(SHARDS, rooms(4, 15.5)) is None
