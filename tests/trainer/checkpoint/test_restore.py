"""Restore: the newest commit that verifies is restored; damaged commits are set aside and reported."""

import dataclasses
import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import verify
from slipway.trainer.checkpoint import restore
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.tiers import replicas, waiting
from slipway.trainer.checkpoint.tiers.locations import CheckpointPlaces, CommitPlace
from slipway.trainer.config.operation import Placement
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Commit
from tests.trainer.checkpoints import ALONE, TOKEN, SmallEngine, durable, saved


def restored(folder: Path, token: fence.Token = TOKEN) -> tuple[int | None, list[int]]:
    """The step of the checkpoint that is restored, and the steps of those set aside before it."""
    aside: list[int] = []
    restored_commit = restore.newest_verified(
        folder / "store", ALONE, token, durable(folder), lambda commit, _: aside.append(commit.step), lambda _: None
    )
    if restored_commit is None:
        return None, aside
    assert restored_commit[1].progress().step == restored_commit[0].step
    restore.load(SmallEngine(), restored_commit[1], ALONE)
    return restored_commit[0].step, aside


def damage(folder: Path, value: Commit) -> None:
    (folder / "durable" / value.folder / "model-00000.safetensors").write_bytes(b"other weights")


def test_without_a_commit_there_is_nothing_to_restore(tmp_path: Path) -> None:
    (commit,) = saved(tmp_path, 5)
    (tmp_path / "store" / "commits" / f"{commit.name}.json").unlink()
    assert restored(tmp_path) == (None, [])


def test_the_newest_commit_is_restored(tmp_path: Path) -> None:
    saved(tmp_path, 5, 10)
    assert restored(tmp_path) == (10, [])


def test_damaged_commits_are_set_aside_and_not_tried_again(tmp_path: Path) -> None:
    _, middle, last = saved(tmp_path, 5, 10, 15)
    for value in (middle, last):
        damage(tmp_path, value)
    assert restored(tmp_path) == (5, [15, 10])
    assert restored(tmp_path) == (5, [])
    reasons = fence.set_aside_reasons(tmp_path / "store")
    assert list(reasons) == [middle.name, last.name]
    assert "model-00000.safetensors: found 13 bytes, expected" in reasons[last.name]


def test_when_all_commits_are_damaged_the_training_starts_again(tmp_path: Path) -> None:
    damage(tmp_path, saved(tmp_path, 5)[0])
    assert restored(tmp_path) == (None, [5])


def test_a_damaged_checkpoint_keeps_its_bytes_for_inspection(tmp_path: Path) -> None:
    (value,) = saved(tmp_path, 5)
    damage(tmp_path, value)
    restored(tmp_path)
    assert (tmp_path / "durable" / value.folder / "model-00000.safetensors").read_bytes() == b"other weights"


FILES = ["model", "optimizer", "frozen", "progress", "MANIFEST"]


@pytest.mark.parametrize("kind", FILES)
def test_every_flipped_bit_truncation_and_missing_file_is_found(tmp_path: Path, kind: str) -> None:
    """Twelve flips and four truncations in each kind of file, at seeded places, and its absence."""
    first, last = saved(tmp_path, 5, 10)
    (path,) = (tmp_path / "durable" / last.folder).glob(f"{kind}*")
    # The frozen file is a link to that of the checkpoint before; the test damages only that of the last checkpoint.
    content, chance = path.read_bytes(), random.Random(f"{kind} 7")
    path.unlink()

    def fault(number: int) -> bytes | None:
        if number == 16:
            return None
        if number >= 12:
            return content[: chance.randrange(len(content))]
        bit = chance.randrange(8 * len(content))
        return content[: bit // 8] + bytes([content[bit // 8] ^ (1 << bit % 8)]) + content[bit // 8 + 1 :]

    for number in range(17):
        if (data := fault(number)) is not None:
            path.write_bytes(data)
        assert restored(tmp_path) == (first.step, [last.step])
        assert path.name in fence.set_aside_reasons(tmp_path / "store")[last.name]
        for records in ("set-aside", "withdrawn"):
            shutil.rmtree(tmp_path / "store" / records)
        path.unlink(missing_ok=True)
    path.write_bytes(content)
    assert restored(tmp_path) == (last.step, [])


def test_a_second_place_is_read_when_the_first_is_damaged_and_the_damaged_copy_is_withdrawn(tmp_path: Path) -> None:
    (value,) = saved(tmp_path, 5)
    shutil.copytree(tmp_path / "durable", tmp_path / "backup")
    replicas.record(tmp_path / "store", value, "backup", 7)
    damage(tmp_path, value)
    copies = [
        CommitPlace("durable", tmp_path / "durable" / value.folder),
        CommitPlace("backup", tmp_path / "backup" / value.folder),
    ]
    restored_commit = restore.newest_verified(tmp_path / "store", ALONE, TOKEN, lambda _: copies, no_call, no_call)
    assert restored_commit is not None and restored_commit[1].folder == copies[1].folder
    assert replicas.holders(tmp_path / "store", [value]) == {value.name: ("backup",)}
    assert replicas.withdrawn_copies(tmp_path / "store", "durable") == {value.name: True}


def no_call(*arguments: object) -> None:
    raise AssertionError(arguments)


def test_a_transient_read_error_sets_nothing_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 5)
    failing: dict[str, Any] = {"readv": os.readv, "preadv": os.preadv}
    for name, ask in failing.items():
        failures = [errno.EIO, errno.ESTALE]

        def read(*arguments: object, ask: Any = ask, failures: list[int] = failures) -> Any:
            if failures:
                raise OSError(failures.pop(), "a transient error")
            return ask(*arguments)

        monkeypatch.setattr(os, name, read)
    assert restored(tmp_path) == (5, [])


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("SECONDS", 0.3), ("PAUSE", 0.1)):
        monkeypatch.setattr(waiting, name, seconds)
    monkeypatch.setattr(verify, "SECONDS", 0.05)


def failing(monkeypatch: pytest.MonkeyPatch, number: int, part: str = "") -> Callable[[], None]:
    """Let reads of the files whose path has this part fail; returns what ends that."""
    readv = os.readv
    fault = [True]

    def read(descriptor: int, buffers: Any) -> int:
        if fault and part in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(number, os.strerror(number))
        return readv(descriptor, buffers)

    monkeypatch.setattr(os, "readv", read)
    return fault.clear


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES, errno.ETIMEDOUT])
def test_a_lasting_read_error_sets_nothing_aside_and_the_start_fails_clearly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None, number: int
) -> None:
    before = saved(tmp_path, 5, 10)
    recover = failing(monkeypatch, number)
    with pytest.raises(waiting.TierAway, match=f"the tier is away.*{os.strerror(number)}"):
        restored(tmp_path)
    assert fence.set_aside_reasons(tmp_path / "store") == {}
    assert fence.commits(tmp_path / "store") == before
    recover()
    assert restored(tmp_path) == (10, [])


def test_a_start_waits_for_a_tier_that_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAUSE", 0.01)
    monkeypatch.setattr(verify, "SECONDS", 0.05)
    saved(tmp_path, 5)
    recover = failing(monkeypatch, errno.EIO)
    away: list[str] = []

    def on_away(reason: str) -> None:
        away.append(reason)
        if len(away) == 3:
            recover()

    restored_commit = restore.newest_verified(tmp_path / "store", ALONE, TOKEN, durable(tmp_path), no_call, on_away)
    assert restored_commit is not None and len(away) == 3


def test_what_another_checkpoint_gives_is_taken_after_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impatient: None
) -> None:
    _, last = saved(tmp_path, 5, 10)
    failing(monkeypatch, errno.EIO, last.name)
    assert restored(tmp_path) == (5, [])
    assert len(fence.commits(tmp_path / "store")) == 2


@pytest.mark.parametrize("folder", ["claims", "commits"])
def test_records_that_are_gone_are_not_a_training_that_begins(tmp_path: Path, impatient: None, folder: str) -> None:
    saved(tmp_path, 5)
    saved(tmp_path, 10, token=fence.Token(2))
    (tmp_path / "store" / folder).rename(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=folder):
        restored(tmp_path, fence.Token(2))


def test_a_superseded_start_sets_nothing_aside(tmp_path: Path) -> None:
    damage(tmp_path, saved(tmp_path, 5)[0])
    fence.claim(tmp_path / "store", fence.Token(2), nodes=(), cause="a test", by="test")
    with pytest.raises(fence.Superseded):
        restored(tmp_path)
    assert fence.set_aside_reasons(tmp_path / "store") == {}
    assert len(fence.commits(tmp_path / "store")) == 1


def test_a_start_sweeps_only_what_older_tokens_left(tmp_path: Path) -> None:
    names = {token: f".{7:09d}.{token}.partial" for token in map(fence.Token, (1, 2, 3))}
    fetched = f".{5:09d}.{fence.Token(1)}.{fence.Token(3)}.fetched"
    for name in (*names.values(), fetched, ".other"):
        (tmp_path / name).mkdir()
    publication.remove_unpublished(tmp_path, fence.Token(2))
    expected = {*names.values(), fetched, ".other"} - {names[fence.Token(1)]}
    assert {path.name for path in tmp_path.iterdir()} == expected


def test_a_tier_that_is_not_mounted_sets_nothing_aside(tmp_path: Path, impatient: None) -> None:
    saved(tmp_path, 5)
    (tmp_path / "durable").rename(tmp_path / "unmounted")
    with pytest.raises(OSError, match="the tier is away"):
        restored(tmp_path)
    assert fence.set_aside_reasons(tmp_path / "store") == {}


def test_a_checkpoint_whose_folder_is_missing_beside_others_is_damaged(tmp_path: Path) -> None:
    first, last = saved(tmp_path, 5, 10)
    shutil.rmtree(tmp_path / "durable" / last.folder)
    assert restored(tmp_path) == (first.step, [last.step])


def test_a_checkpoint_of_another_layout_is_refused_and_not_set_aside(tmp_path: Path) -> None:
    saved(tmp_path, 5)
    folder = "checkpoints/tiny/000000010.000001.0000"
    manifest = publication.write(tmp_path / "durable" / folder, "chunks/9", {"progress.json": b"{}"})
    fence.commit(tmp_path / "store", Commit(10, fence.Token(1), folder, manifest))
    with pytest.raises(ValueError, match=r"found the layout 'chunks/9', expected 'chunks/2' or 'chunks/1'"):
        restored(tmp_path)
    assert fence.set_aside_reasons(tmp_path / "store") == {}


def test_a_commit_that_is_only_on_a_node_that_is_gone_is_passed_over_aloud_and_stays(tmp_path: Path) -> None:
    (older,) = saved(tmp_path, 5)
    newer = dataclasses.replace(older, step=10, tier="nvme", folder=older.folder.replace("05.", "10."))
    fence.commit(tmp_path / "store", newer)
    placement = Placement(
        store=str(tmp_path / "store"), durable=str(tmp_path / "durable"), nvme=str(tmp_path / "nvme-of-{node}")
    )
    messages: list[tuple[str, str]] = []
    nodes = restore.NodeReading(on_lost=lambda commit, why: messages.append((commit.name, why)))
    checkpoint_places = CheckpointPlaces(placement, ALONE, TOKEN)
    restored_commit = restore.newest_verified(
        tmp_path / "store", ALONE, TOKEN, checkpoint_places, no_call, no_call, nodes
    )
    assert restored_commit is not None and restored_commit[0] == older
    assert messages == [(newer.name, "on the NVMe of another node, which this training has not now")]
    assert newer in fence.commits(tmp_path / "store")
