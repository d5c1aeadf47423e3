"""Killed anywhere, or several at once: the next staging finishes, and no shard is copied twice."""

import contextlib
import json
import os
import random
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.data import shards
from slipway.trainer.staging import leases
from slipway.trainer.staging.stage import WORKERS, is_staged, stage
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import until
from tests.trainer.staging.folders import (
    assert_nothing_wrong_is_visible,
    assert_whole,
    copies_in_the_middle,
    half_a_shard,
    is_in_mid_copy,
    partial_copies,
    staging_process,
)


def waits_for_a_lock(pid: int) -> bool:
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in line and str(pid) in line for line in locks)


def test_stagings_at_once_share_the_work_and_copy_nothing_twice(snapshot, durable, nvme):
    source = shards.shard_path(durable, snapshot.shards()[1])
    with half_a_shard(source) as rest:
        first = staging_process(snapshot.sha256, [durable], nvme)
        until(lambda: is_in_mid_copy(nvme), "a copy to begin")
        others = [staging_process(snapshot.sha256, [durable], nvme) for _ in range(2)]
        until(lambda: all(waits_for_a_lock(other.pid) for other in others), "the others to wait")
        with open(source, "wb", buffering=0) as pipe:
            pipe.write(rest)
    results = [json.loads(process.communicate()[0]) for process in (first, *others)]
    assert [result["copied_shards"] for result in results] == [4, 0, 0]
    assert sum(result["copied_bytes"] for result in results) == results[0]["bytes"]
    assert_whole(snapshot, nvme)


def test_another_snapshot_is_staged_while_one_is_held_up(snapshot, durable, nvme):
    other = make_snapshot(durable, shard_count=2, tokens=500)
    with half_a_shard(shards.shard_path(durable, snapshot.shards()[1])):
        process = staging_process(snapshot.sha256, [durable], nvme)
        until(lambda: is_in_mid_copy(nvme), "a copy to begin")
        stage(other.sha256, durable, nvme)
        assert is_staged(other.sha256, nvme) and process.poll() is None
        process.kill()
        process.communicate()


def test_a_staging_killed_in_mid_copy_is_continued_where_it_ended(snapshot, durable, nvme):
    with half_a_shard(shards.shard_path(durable, snapshot.shards()[1])):
        process = staging_process(snapshot.sha256, [durable], nvme)
        until(lambda: is_in_mid_copy(nvme) and len(list((nvme / "shards").glob("*"))) == 3, "all other shards")
        process.kill()
        process.communicate()
    assert len(partial_copies(nvme)) == 1
    assert not is_staged(snapshot.sha256, nvme)
    staged = stage(snapshot.sha256, durable, nvme)
    assert (staged.copied_shards, staged.copied_bytes) == (1, snapshot.shards()[1].bytes - 1000)
    assert_whole(snapshot, nvme)


def test_a_staging_that_ends_with_an_error_gives_its_lease_back(snapshot, durable, nvme):
    shards.shard_path(durable, snapshot.shards()[0]).unlink()
    with pytest.raises(ValueError, match="no origin has it whole"):
        stage(snapshot.sha256, durable, nvme)
    assert not leases.is_held(nvme, snapshot.sha256)


@contextlib.contextmanager
def staging_let_go(snapshot: shards.TextSnapshot, durable: Path, nvme: Path) -> "Iterator[subprocess.Popen[str]]":
    """A staging just let go from where each of its workers was in the middle of its first copy; in the end killed."""
    source_paths = [shards.shard_path(durable, shard) for shard in snapshot.shards()[:WORKERS]]
    with contextlib.ExitStack() as sources:
        rests = [sources.enter_context(half_a_shard(source)) for source in source_paths]
        process = staging_process(snapshot.sha256, [durable], nvme)
        until(lambda: len(copies_in_the_middle(nvme)) == WORKERS, "every worker's copy to begin")
        for source, rest in zip(source_paths, rests, strict=True):
            with open(source, "wb", buffering=0) as pipe:
                pipe.write(rest)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def seconds_left(snapshot: shards.TextSnapshot, durable: Path, nvme: Path) -> float:
    """What a staging takes from there when nobody disturbs it."""
    with staging_let_go(snapshot, durable, nvme):
        begun = time.monotonic()
        while not is_staged(snapshot.sha256, nvme):
            time.sleep(0)
        return time.monotonic() - begun


def killed_and_finished(snapshot: shards.TextSnapshot, durable: Path, nvme: Path, seconds: float) -> bool:
    """Kill a staging that many seconds on; the next one finishes. Says whether anything was left to do."""
    with staging_let_go(snapshot, durable, nvme):
        time.sleep(seconds)
    unfinished = not is_staged(snapshot.sha256, nvme)
    assert_nothing_wrong_is_visible(nvme)
    stage(snapshot.sha256, durable, nvme)
    assert is_staged(snapshot.sha256, nvme)
    assert_whole(snapshot, nvme)
    return unfinished


def kill_at_random(kills: int, folder: Path) -> None:
    """Kill stagings at random moments until so many had work left; some come too late, as stagings vary in speed."""
    durable = folder / "durable"
    snapshot = make_snapshot(durable, shard_count=4 * WORKERS, tokens=20_000)
    seconds, draw = seconds_left(snapshot, durable, folder / "undisturbed"), random.Random(kills)
    for attempt in range(10 * kills):
        kills -= killed_and_finished(snapshot, durable, folder / f"nvme-{attempt}", draw.random() * seconds)
        if kills == 0:
            return
    raise AssertionError(f"{kills} kills too few met a staging at work")


def test_a_staging_killed_at_a_random_point_is_finished_by_the_next(tmp_path):
    kill_at_random(3, tmp_path)


@pytest.mark.nightly
def test_a_staging_killed_at_any_of_fifty_points_is_finished_by_the_next(tmp_path):
    kill_at_random(50, tmp_path)


def test_a_node_process_of_another_user_id_leaves_readable_files(snapshot, durable, nvme):
    mask = os.umask(0o077)
    try:
        stage(snapshot.sha256, durable, nvme)
    finally:
        os.umask(mask)
    assert shards.manifest_path(nvme, snapshot.sha256).stat().st_mode & 0o777 == 0o644
