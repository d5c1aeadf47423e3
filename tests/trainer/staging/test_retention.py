"""Leases and retention: the least recently used goes first, and what a process reads never goes."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slipway.cli.main import main
from slipway.trainer.base import paths
from slipway.trainer.base.units import DAY
from slipway.trainer.data import shards
from slipway.trainer.staging import leases, retention
from slipway.trainer.staging.nvme import boot
from slipway.trainer.staging.retention import Resident, make_room, retain, snapshots_to_remove
from slipway.trainer.staging.stage import is_staged, stage
from tests.assets.datasets.snapshots import make_snapshot
from tests.conftest import until
from tests.trainer.staging.folders import (
    ROOT,
    assert_whole,
    half_a_shard,
    is_in_mid_copy,
    partial_copies,
    staging_process,
)

pytestmark = pytest.mark.pure

A, B, C = ("a" * 64, "b" * 64, "c" * 64)
SIZES = {"1": 10, "2": 10, "3": 10, "4": 10}


def resident(name: str, used: float, *named: str, leased: bool = False) -> Resident:
    return Resident(name, used, leased, frozenset(named))


def test_within_the_limits_nothing_is_removed():
    assert snapshots_to_remove([resident(A, 5, "1"), resident(B, 6, "2")], SIZES, most_bytes=20, oldest=5) == []


def test_a_snapshot_that_was_not_used_for_long_is_removed_though_there_is_room():
    assert snapshots_to_remove([resident(A, 1, "1"), resident(B, 6, "2")], SIZES, most_bytes=99, oldest=5) == [A]


def test_the_least_recently_used_are_removed_until_the_rest_fits():
    residents = [resident(C, 9, "3"), resident(A, 7, "1"), resident(B, 8, "2")]
    assert snapshots_to_remove(residents, SIZES, most_bytes=10, oldest=0) == [A, B]


def test_shared_shards_count_once_and_free_nothing_while_one_needs_them():
    residents = [resident(A, 1, "1", "2"), resident(B, 2, "2", "3"), resident(C, 3, "3", "4")]
    assert snapshots_to_remove(residents, SIZES, most_bytes=30, oldest=0) == [A]
    assert snapshots_to_remove(residents, SIZES, most_bytes=29, oldest=0) == [A, B]


def test_a_lease_outweighs_age_and_space():
    residents = [resident(A, 1, "1", leased=True), resident(B, 2, "2")]
    assert snapshots_to_remove(residents, SIZES, most_bytes=0, oldest=5) == [B]


def used_ago(nvme: Path, snapshot: shards.TextSnapshot, days: float) -> None:
    at = time.time() - days * DAY
    os.utime(paths.lease(nvme, snapshot.sha256), (at, at))


@pytest.fixture
def pair(durable: Path, nvme: Path) -> tuple[shards.TextSnapshot, shards.TextSnapshot]:
    """Two staged snapshots that share their training shards: one used ten days ago, one now."""
    old, new = make_snapshot(durable), make_snapshot(durable, shard_count=4)
    for snapshot, days in ((old, 10), (new, 0)):
        stage(snapshot.sha256, durable, nvme)
        used_ago(nvme, snapshot, days)
    return old, new


def test_an_old_snapshot_is_removed_and_the_shards_that_a_new_one_shares_stay(pair, nvme):
    old, new = pair
    expected = {shard.blake3 for shard in new.shards()}
    gone = {shard.blake3 for shard in old.shards()} - expected
    retained = retain(nvme, gigabytes=1, days=7)
    assert (retained.removed_snapshots, retained.removed_shards) == ((old.sha256,), len(gone))
    assert {path.stem for path in (nvme / "shards").iterdir()} == expected
    assert is_staged(new.sha256, nvme) and not is_staged(old.sha256, nvme)
    assert retained.kept_bytes == sum(path.stat().st_size for path in (nvme / "shards").iterdir())


def test_a_dry_run_says_the_same_and_removes_nothing(pair, nvme):
    before = sorted(nvme.rglob("*"))
    outcome = retain(nvme, gigabytes=0, days=7, dry_run=True)
    assert sorted(nvme.rglob("*")) == before
    assert retain(nvme, gigabytes=0, days=7) == outcome
    assert list((nvme / "shards").iterdir()) == []


def test_staging_again_is_a_use(pair, durable, nvme):
    old, _ = pair
    stage(old.sha256, durable, nvme)
    assert retain(nvme, gigabytes=1, days=7).removed_snapshots == ()


def test_a_removed_snapshot_can_be_staged_again(pair, durable, nvme):
    retain(nvme, gigabytes=0, days=7)
    stage(pair[0].sha256, durable, nvme)
    assert_whole(pair[0], nvme)


def reader(nvme: Path, sha256: str) -> "subprocess.Popen[str]":
    """Another process that holds a lease, and says when it has it."""
    script = (
        "import sys, pathlib; from slipway.trainer.staging import leases\n"
        "lease = leases.hold(pathlib.Path(sys.argv[1]), sys.argv[2]); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(nvme), sha256]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    return process


@pytest.mark.process
def test_a_leased_snapshot_stays_until_its_reader_is_dead_however_it_dies(pair, nvme):
    old, _ = pair
    process = reader(nvme, old.sha256)
    used_ago(nvme, old, 10)
    retained = retain(nvme, gigabytes=0, days=7)
    assert old.sha256 not in retained.removed_snapshots and retained.leased_snapshots == 1
    assert is_staged(old.sha256, nvme)
    process.kill()
    process.communicate()
    assert retain(nvme, gigabytes=0, days=7).removed_snapshots == (old.sha256,)


def test_a_lease_that_is_found_counts_as_a_use(pair, nvme):
    old, _ = pair
    with leases.hold(nvme, old.sha256):
        used_ago(nvme, old, 10)
        retain(nvme, gigabytes=1, days=7)
    assert retain(nvme, gigabytes=1, days=7).removed_snapshots == ()


def test_shards_that_no_manifest_names_are_removed_unless_a_leased_snapshot_might_name_them(pair, nvme):
    _, new = pair
    lease = leases.hold(nvme, new.sha256)
    shards.manifest_path(nvme, new.sha256).write_bytes(b"damaged")
    count = len(list((nvme / "shards").iterdir()))
    retain(nvme, gigabytes=0, days=7)
    assert len(list((nvme / "shards").iterdir())) == count
    lease.release()
    retain(nvme, gigabytes=0, days=7)
    assert list((nvme / "shards").iterdir()) == []


@pytest.mark.process
def test_old_partial_files_are_removed_unless_a_process_works_on_them(snapshot, durable, nvme):
    with half_a_shard(shards.shard_path(durable, snapshot.shards()[1])):
        process = staging_process(snapshot.sha256, [durable], nvme)
        others = len(snapshot.shards()) - 1
        until(lambda: len(list((nvme / "shards").glob("*"))) == others, "the other shards to be there")
        until(lambda: is_in_mid_copy(nvme), "its copy to begin")
        [partial] = partial_copies(nvme)
        os.utime(partial, (1, 1))
        retain(nvme, gigabytes=1, days=7)
        assert partial_copies(nvme) == [partial], "its staging is alive"
        process.kill()
        process.communicate()
    retain(nvme, gigabytes=1, days=0.5)
    assert partial_copies(nvme) == []


def test_journals_of_earlier_boots_are_removed(pair, nvme):
    (nvme / "verified" / "earlier.journal").write_bytes(b"")
    retain(nvme, gigabytes=1, days=70)
    assert [path.stem for path in (nvme / "verified").iterdir()] == [boot()]


@pytest.mark.parametrize(
    "remove", [lambda nvme: retain(nvme, gigabytes=0, days=0), lambda nvme: make_room(nvme, 10**9)]
)
def test_a_shard_that_a_snapshot_names_which_arrives_in_the_middle_of_a_removal_stays(
    remove: Callable[[Path], object], pair, nvme, monkeypatch: pytest.MonkeyPatch
):
    """The one that is being staged holds a lease, and shares shards with one that goes."""
    arriving, _ = pair
    path = shards.manifest_path(nvme, arriving.sha256)
    manifest = path.read_bytes()
    path.unlink()
    looked = retention._residents

    def residents(node: Path) -> list[Resident]:
        resident_list = looked(node)
        path.write_bytes(manifest)
        return resident_list

    monkeypatch.setattr(retention, "_residents", residents)
    with leases.hold(nvme, arriving.sha256):
        remove(nvme)
        assert_whole_shards(arriving, nvme)


def test_two_stagings_and_a_retention_at_once_do_each_other_no_harm(durable, nvme):
    """A retention that wants all gone runs again and again; whoever has staged under a lease keeps what it has."""
    snapshots = [make_snapshot(durable, shard_count=count, tokens=2000) for count in (8, 12)]
    over = threading.Event()
    removed: list[str] = []

    def remove_all() -> None:
        while not over.is_set():
            removed.extend(retain(nvme, gigabytes=0, days=0).removed_snapshots)

    def stage_often(snapshot: shards.TextSnapshot) -> None:
        for _ in range(15):
            with leases.hold(nvme, snapshot.sha256):
                stage(snapshot.sha256, durable, nvme)
                assert_whole_shards(snapshot, nvme)

    failures: list[BaseException] = []

    def guarded(work, *arguments) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            failures.append(error)

    remover = threading.Thread(target=guarded, args=(remove_all,))
    stagers = [threading.Thread(target=guarded, args=(stage_often, snapshot)) for snapshot in snapshots]
    for thread in (remover, *stagers):
        thread.start()
    for thread in stagers:
        thread.join()
    until(lambda: removed or failures, "a removal, which may have found all in use until now")
    over.set()
    remover.join()
    assert failures == []


def assert_whole_shards(snapshot: shards.TextSnapshot, nvme: Path) -> None:
    assert is_staged(snapshot.sha256, nvme)
    for split in snapshot.splits.values():
        for shard in split.shards:
            shards.open_shard(nvme, shard, snapshot.dtype)


def test_the_command_prints_what_was_removed_as_json(pair, nvme, capsys):
    assert main(["nodes", "clean", "--nvme", str(nvme), "--gigabytes", "1", "--days", "7", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["removed_snapshots"] == [pair[0].sha256]
