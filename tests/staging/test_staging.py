"""Staging: what is on the NVMe is whole and verified, whatever happened before."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.data.snapshots import make_snapshot
from trainer import digest, shards
from trainer.staging import Staged, is_staged, stage

ROOT = Path(__file__).parents[2]


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    return tmp_path / "durable"


@pytest.fixture
def nvme(tmp_path: Path) -> Path:
    return tmp_path / "nvme"


@pytest.fixture
def snapshot(durable: Path) -> shards.Snapshot:
    return make_snapshot(durable)


def staging_process(sha256: str, durable: Path, nvme: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "trainer.staging", sha256, "--from", str(durable), "--to", str(nvme)]
    return subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def assert_whole(snapshot: shards.Snapshot, nvme: Path) -> None:
    assert shards.read_manifest(nvme, snapshot.sha256) == snapshot
    for shard in snapshot.shards():
        assert digest.of_file(shards.shard_path(nvme, shard)) == shard.blake3
    assert partial_copies(nvme) == []


def partial_copies(nvme: Path) -> list[Path]:
    return list(nvme.rglob(".*.shard.*"))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_staging_brings_the_manifest_and_every_shard(snapshot, durable, nvme):
    staged = stage(snapshot.sha256, durable, nvme)
    size = sum(shard.bytes for shard in snapshot.shards())
    assert staged == Staged(4, size, 4, size, staged.seconds)
    assert_whole(snapshot, nvme)
    assert is_staged(snapshot.sha256, nvme)


def test_nothing_is_staged_on_an_empty_node(snapshot, nvme):
    assert not is_staged(snapshot.sha256, nvme)


def test_a_second_staging_copies_nothing_and_does_not_need_the_durable_tier(snapshot, durable, nvme):
    first = stage(snapshot.sha256, durable, nvme)
    durable.rename(durable.with_name("away"))
    second = stage(snapshot.sha256, durable, nvme)
    assert second == Staged(first.shards, first.bytes, 0, 0, second.seconds)


def test_progress_ends_at_the_total(snapshot, durable, nvme):
    reports: list[tuple[int, int]] = []
    staged = stage(snapshot.sha256, durable, nvme, lambda done, total: reports.append((done, total)))
    assert [total for _, total in reports] == [staged.bytes] * 4
    assert reports[-1] == (staged.bytes, staged.bytes)
    assert reports == sorted(reports)


@pytest.mark.parametrize("damage", [flip_a_bit, lambda path: os.truncate(path, 100), Path.unlink])
def test_a_damaged_shard_on_the_nvme_is_noticed_and_it_alone_is_copied_again(snapshot, durable, nvme, damage):
    stage(snapshot.sha256, durable, nvme)
    damage(shards.shard_path(nvme, snapshot.shards()[1]))
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 1
    assert_whole(snapshot, nvme)


@pytest.mark.parametrize("content", [None, b"", b"[]", b'{"shards": 7}', b"\xff"])
def test_without_a_good_marker_shards_are_verified_and_kept(snapshot, durable, nvme, content):
    stage(snapshot.sha256, durable, nvme)
    marker = nvme / "staged" / f"{snapshot.sha256}.json"
    marker.unlink()
    if content is not None:
        marker.write_bytes(content)
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 0
    assert is_staged(snapshot.sha256, nvme)


def test_a_damaged_manifest_on_the_nvme_is_replaced(snapshot, durable, nvme):
    stage(snapshot.sha256, durable, nvme)
    flip_a_bit(shards.manifest_path(nvme, snapshot.sha256))
    assert not is_staged(snapshot.sha256, nvme)
    stage(snapshot.sha256, durable, nvme)
    assert_whole(snapshot, nvme)


def test_shards_that_two_snapshots_share_are_copied_once(snapshot, durable, nvme):
    larger = make_snapshot(durable, shard_count=5)
    common = {shard.blake3 for shard in snapshot.shards()} & {shard.blake3 for shard in larger.shards()}
    stage(snapshot.sha256, durable, nvme)
    assert len(common) >= 3
    assert stage(larger.sha256, durable, nvme).copied_shards == 6 - len(common)


def test_a_shard_damaged_at_the_source_is_refused_with_what_was_found(snapshot, durable, nvme):
    shard = snapshot.shards()[2]
    source = shards.shard_path(durable, shard)
    flip_a_bit(source)
    found = digest.of_file(source)
    with pytest.raises(ValueError, match=re.escape(str(source))) as error:
        stage(snapshot.sha256, durable, nvme)
    assert found in str(error.value)
    assert shard.blake3 in str(error.value)
    assert not shards.shard_path(nvme, shard).exists()
    assert partial_copies(nvme) == []
    assert not is_staged(snapshot.sha256, nvme)


def test_a_shard_cut_short_at_the_source_is_refused_with_its_size(snapshot, durable, nvme):
    os.truncate(shards.shard_path(durable, snapshot.shards()[0]), 100)
    with pytest.raises(ValueError, match=r"damaged: found 100 bytes .* expected 2016 bytes"):
        stage(snapshot.sha256, durable, nvme)


def test_a_shard_missing_at_the_source_is_named(snapshot, durable, nvme):
    source = shards.shard_path(durable, snapshot.shards()[0])
    source.unlink()
    with pytest.raises(ValueError, match=re.escape(f"{source}: missing: expected a shard of 2016 bytes")):
        stage(snapshot.sha256, durable, nvme)


def test_an_unknown_snapshot_leaves_no_trace(durable, nvme):
    with pytest.raises(ValueError, match="there is no such snapshot"):
        stage("0" * 64, durable, nvme)
    assert not nvme.exists()


def test_the_command_prints_one_json_line(snapshot, durable, nvme):
    process = staging_process(snapshot.sha256, durable, nvme)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out)["copied_shards"] == 4


def test_the_command_says_in_one_line_what_is_wrong(durable, nvme):
    process = staging_process("0" * 64, durable, nvme)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("staging: ") and err.count("\n") == 1


@contextlib.contextmanager
def half_a_shard(source: Path) -> Iterator[bytes]:
    """A source that gives the first half of its bytes and then waits, so that a copy is in its middle for sure.

    Yields the other half; afterwards the file is as it was.
    """
    data = source.read_bytes()
    source.unlink()
    os.mkfifo(source)
    pipe = os.open(source, os.O_RDWR)
    try:
        os.write(pipe, data[:1000])
        yield data[1000:]
    finally:
        os.close(pipe)
        source.unlink()
        source.write_bytes(data)


def wait_until(condition: Callable[[], bool], *alive: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in alive)


def is_in_mid_copy(nvme: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return any(path.stat().st_size == 1000 for path in partial_copies(nvme))
    return False


def waits_for_a_lock(process: "subprocess.Popen[str]") -> bool:
    locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any("->" in line and str(process.pid) in line for line in locks)


def test_stagings_at_once_take_turns_and_share_the_work(snapshot, durable, nvme):
    source = shards.shard_path(durable, snapshot.shards()[1])
    with half_a_shard(source) as rest:
        first = staging_process(snapshot.sha256, durable, nvme)
        wait_until(lambda: is_in_mid_copy(nvme), first)
        others = [staging_process(snapshot.sha256, durable, nvme) for _ in range(2)]
        wait_until(lambda: all(waits_for_a_lock(other) for other in others), first, *others)
        with open(source, "wb", buffering=0) as pipe:
            pipe.write(rest)
    results = [json.loads(process.communicate(timeout=60)[0]) for process in (first, *others)]
    assert [result["copied_shards"] for result in results] == [4, 0, 0]
    assert_whole(snapshot, nvme)


def test_a_staging_killed_in_mid_copy_is_finished_by_the_next(snapshot, durable, nvme):
    with half_a_shard(shards.shard_path(durable, snapshot.shards()[1])):
        process = staging_process(snapshot.sha256, durable, nvme)
        wait_until(lambda: is_in_mid_copy(nvme), process)
        process.kill()
        process.communicate(timeout=60)
    assert len(partial_copies(nvme)) == 1
    assert not is_staged(snapshot.sha256, nvme)
    assert stage(snapshot.sha256, durable, nvme).copied_shards == 3, "the shard before the kill is kept"
    assert_whole(snapshot, nvme)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_one_clear_error_and_nothing_partial(durable, small_disk):
    snapshot = make_snapshot(durable, shard_count=3, tokens=10_000)
    with pytest.raises(OSError, match="cannot be staged: No space left on device") as error:
        stage(snapshot.sha256, durable, small_disk)
    assert str(error.value.filename).startswith(str(small_disk / "shards"))
    assert partial_copies(small_disk) == []
    for path in (small_disk / "shards").iterdir():
        assert digest.of_file(path) == path.stem
    assert not is_staged(snapshot.sha256, small_disk)
