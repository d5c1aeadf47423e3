"""Shards of a script: a dataset larger than the node is read in the script's own order, few shards at a time."""

import threading
from pathlib import Path

import numpy as np
import pytest

from slipway.trainer.config.operation import Placement
from slipway.trainer.data import shards
from slipway.trainer.script.shards import ScriptShards
from tests.trainer.counting import snapshot_of

SHARDS = 12


@pytest.fixture
def snapshot(tmp_path: Path) -> shards.TextSnapshot:
    text_snapshot = snapshot_of(tmp_path / "durable", *[1000] * SHARDS)
    shards.write_manifest(tmp_path / "durable", text_snapshot)
    return text_snapshot


def placement(folder: Path, room_in_shards: float | None, **more: str) -> Placement:
    size = 4016  # 1,000 tokens of four bytes, and two offsets
    gigabytes = None if room_in_shards is None else room_in_shards * size / 1e9
    tiers = {"store": str(folder), "durable": str(folder / "durable"), "nvme": str(folder / "{node}")}
    return Placement(**tiers, **more, nvme_gigabytes=gigabytes)  # type: ignore[arg-type]


def of_rank(
    folder: Path, snapshot: shards.TextSnapshot, room: float | None, ranks: int = 1, **more: str
) -> ScriptShards:
    return ScriptShards(placement(folder, room, **more), snapshot.sha256, "node-0", ranks)


def staged(folder: Path) -> int:
    return len(list((folder / "node-0" / "shards").glob("*.shard")))


def first_tokens(read: list[Path]) -> list[int]:
    return [int(np.fromfile(path, np.uint32, 1)[0]) for path in read]


@pytest.mark.parametrize(("room", "most"), [(2.5, 2), (1.5, 1)])
def test_each_shard_is_there_in_its_turn_and_no_more_than_there_is_room_for(
    tmp_path: Path, snapshot: shards.TextSnapshot, room: float, most: int
) -> None:
    rank_shards, order = of_rank(tmp_path, snapshot, room), [*range(SHARDS), *reversed(range(SHARDS)), 3, 3]
    assert not rank_shards.is_whole and staged(tmp_path) == 0
    read: list[int] = []
    for path in rank_shards.moving("train", order):
        read += first_tokens([path])
        assert staged(tmp_path) <= most
    assert read == [10_000 * number for number in order]
    assert staged(tmp_path) == 0


def test_two_ranks_of_a_node_read_orders_of_their_own(tmp_path: Path, snapshot: shards.TextSnapshot) -> None:
    ranks = [of_rank(tmp_path, snapshot, 4.5, ranks=2) for _ in range(2)]
    orders, read = [list(range(SHARDS)), list(range(SHARDS))[::-1]], [list[int](), list[int]()]

    def run(rank: int) -> None:
        for path in ranks[rank].moving("train", orders[rank]):
            read[rank].extend(first_tokens([path]))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [[10_000 * number for number in order] for order in orders]


def test_a_node_with_room_for_all_holds_all_and_reads_it_in_either_way(
    tmp_path: Path, snapshot: shards.TextSnapshot
) -> None:
    rank_shards = of_rank(tmp_path, snapshot, None)
    assert rank_shards.is_whole and staged(tmp_path) == SHARDS
    assert list(rank_shards.moving("train", [5, 1])) == [rank_shards.files("train")[5], rank_shards.files("train")[1]]


def test_a_script_that_asks_for_all_files_of_a_window_is_told_what_to_do(
    tmp_path: Path, snapshot: shards.TextSnapshot
) -> None:
    rank_shards = of_rank(tmp_path, snapshot, 2.5)
    with pytest.raises(ValueError, match=r"shards\('train'\): found a window, as the snapshot has 48.2 kB.*moving"):
        rank_shards.files("train")


def test_a_node_without_room_for_a_shard_of_each_rank_is_refused(tmp_path: Path, snapshot: shards.TextSnapshot) -> None:
    with pytest.raises(ValueError, match=r"found auto with 6.0 kB of room on the NVMe of node-0, expected 8.0 kB"):
        of_rank(tmp_path, snapshot, 1.5, ranks=2)
    with pytest.raises(ValueError, match=r"found whole, but the snapshot has 48\.2 kB"):
        of_rank(tmp_path, snapshot, 2.5, staging="whole")


def test_what_a_script_left_in_the_middle_is_held_no_longer(tmp_path: Path, snapshot: shards.TextSnapshot) -> None:
    reading = of_rank(tmp_path, snapshot, 2.5).moving("train", range(SHARDS))
    next(reading)
    reading.close()
    assert not list((tmp_path / "node-0" / "held").glob("*"))
