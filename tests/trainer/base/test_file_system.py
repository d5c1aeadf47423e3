"""File systems: what they can do is tried; what is missing is named, and has another way or none."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import file_system

pytestmark = pytest.mark.pure


def missing(folder: Path) -> list[str]:
    return [ability.name for ability in file_system.abilities(folder) if ability.fault]


def refusing(code: int) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


def test_a_local_disk_can_do_everything_and_keeps_nothing_of_the_probe(tmp_path: Path) -> None:
    assert missing(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
    assert "locks hold on this host" in file_system.require(tmp_path, "nvme")


def test_without_hard_links_there_is_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", refusing(errno.EOPNOTSUPP))
    assert missing(tmp_path) == ["hard links"]
    assert "no hard links (files are created exclusively)" in file_system.require(tmp_path, "durable")


def test_locks_that_hold_nobody_off_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert missing(tmp_path) == ["locks"]


def test_a_tier_whose_files_cannot_be_synced_is_refused_with_its_name_and_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refusing(errno.EIO))
    with pytest.raises(OSError, match=r"the tier durable, .* cannot hold a training: sync of files: it fails with EIO"):
        file_system.require(tmp_path, "durable")


def test_an_exclusive_create_that_is_none_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open
    monkeypatch.setattr(os, "open", lambda path, flags, *rest: opened(path, flags & ~os.O_EXCL, *rest))
    with pytest.raises(OSError, match="a second writer created the same file"):
        file_system.require(tmp_path, "durable")


def test_a_tier_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tier").write_text("a file where a folder should be")
    with pytest.raises(OSError, match=r"the tier durable, .* cannot be written: Not a directory"):
        file_system.require(tmp_path / "tier", "durable")


def test_a_full_disk_says_nothing_about_its_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", refusing(errno.ENOSPC))
    assert "not probed: No space left on device" in file_system.require(tmp_path, "durable")


@pytest.mark.parametrize(
    ("mount", "expected"),
    [
        ("nfs4 server:/export rw,vers=4.2,local_lock=none", "locks hold on all hosts"),
        ("nfs server:/export rw,vers=3,local_lock=all", "locks hold on this host alone (mounted with local_lock=all)"),
        ("ceph 10.0.0.1:/ rw,acl", "locks hold on all hosts"),
        ("lustre mgs:/fs rw,flock,lazystatfs", "locks hold on all hosts"),
        ("lustre mgs:/fs rw,lazystatfs", "locks may not hold on other hosts"),
        ("lustre mgs:/fs rw,localflock", "locks hold on this host alone (mounted with localflock)"),
        ("fuse.daos dfuse rw", "locks may not hold on other hosts"),
    ],
)
def test_the_options_of_a_mount_say_for_whom_its_locks_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, expected: str
) -> None:
    number = tmp_path.stat().st_dev
    table = tmp_path / "mountinfo"
    table.write_text(f"36 35 {os.major(number)}:{os.minor(number)} / /mnt rw,noatime shared:1 - {mount}\n")
    monkeypatch.setattr(file_system, "MOUNTS", table)
    assert file_system.lock_scope(tmp_path) == expected
