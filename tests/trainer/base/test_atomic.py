"""Atomic writes: whole or absent, and exactly one of several writers of a path wins."""

import errno
import json
import multiprocessing
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from slipway.trainer.base import atomic
from tests.conftest import PATIENCE_SECONDS


def names(folder: Path) -> list[str]:
    """All that lies in a folder, temporary files included."""
    return sorted(path.name for path in folder.iterdir())


def test_create_only_makes_the_folders_on_the_way(tmp_path: Path) -> None:
    assert atomic.create_only(tmp_path / "a" / "b" / "file", b"first")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"first"


def test_create_only_returns_false_and_changes_nothing_when_the_file_exists(tmp_path: Path) -> None:
    atomic.create_only(tmp_path / "file", b"first")
    assert not atomic.create_only(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert names(tmp_path) == ["file"]


@pytest.mark.slow
def test_exactly_one_of_several_processes_creates_a_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for attempt in range(10):
        path, gate, won = tmp_path / f"{attempt}", context.Barrier(4), context.Queue()

        def race(number: int, path: Path = path, gate=gate, won=won) -> None:
            gate.wait()
            won.put((atomic.create_only(path, b"%d" % number * 1000), number))

        racers = [context.Process(target=race, args=(number,)) for number in range(4)]
        for racer in racers:
            racer.start()
        outcomes = [won.get(timeout=PATIENCE_SECONDS) for _ in racers]
        for racer in racers:
            racer.join()
        (winner,) = [number for created, number in outcomes if created]
        assert path.read_bytes() == b"%d" % winner * 1000
    assert len(names(tmp_path)) == 10


def test_a_reader_beside_a_writer_sees_the_old_bytes_or_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([letter]) * 100_000 for letter in b"ab"]
    atomic.replace(path, contents[0])

    def write() -> None:
        for turn in range(200):
            atomic.replace(path, contents[turn % 2])

    writer = multiprocessing.get_context("fork").Process(target=write)
    writer.start()
    contents_read = set()
    while writer.is_alive():
        contents_read.add(path.read_bytes())
    writer.join()
    assert contents_read == set(contents)
    assert names(tmp_path) == ["file"]


def test_files_are_readable_for_all_users(tmp_path: Path) -> None:
    atomic.replace(tmp_path / "file", b"")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


@pytest.mark.parametrize("write", [atomic.create_only, atomic.replace])
def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path, write) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    if write is atomic.replace:
        with pytest.raises(OSError):
            write(tmp_path / "taken", b"data")
    else:
        assert not write(tmp_path / "taken", b"data")
    with pytest.raises(OSError):
        write(tmp_path / "taken" / "file" / "below", b"data")
    assert names(tmp_path) == ["taken"]
    assert names(tmp_path / "taken") == ["file"]


def test_equal_values_have_equal_canonical_json() -> None:
    assert atomic.canonical_json({"b": [1, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'.encode()


@pytest.mark.parametrize("spell", [atomic.canonical_json, atomic.readable_json])
def test_json_has_no_nan(spell) -> None:
    with pytest.raises(ValueError):
        spell({"loss": float("nan")})


def test_readable_json_reads_back(tmp_path: Path) -> None:
    value = {"loss": 1.25, "names": ["é", "\n"], "none": None}
    assert json.loads(atomic.readable_json(value)) == value


def test_a_finished_file_moves_to_its_place_over_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"new")
    atomic.create_only(tmp_path / "there" / "file", b"old")
    atomic.move(tmp_path / "made", tmp_path / "there" / "file")
    assert (tmp_path / "there" / "file").read_bytes() == b"new"
    assert names(tmp_path) == ["there"]


def test_a_folder_is_shown_with_all_its_files(tmp_path: Path) -> None:
    atomic.write(tmp_path / ".made" / "deep" / "file", [b"one ", memoryview(b"two")])
    assert atomic.show(tmp_path / ".made", tmp_path / "shown" / "folder")
    assert (tmp_path / "shown" / "folder" / "deep" / "file").read_bytes() == b"one two"
    assert names(tmp_path) == ["shown"]


def test_a_folder_that_is_shown_already_stays(tmp_path: Path) -> None:
    atomic.write(tmp_path / "folder" / "file", [b"first"])
    atomic.write(tmp_path / ".made" / "file", [b"second"])
    assert not atomic.show(tmp_path / ".made", tmp_path / "folder")
    assert (tmp_path / "folder" / "file").read_bytes() == b"first"


def refusing(code: int) -> Any:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    return refuse


@pytest.fixture(params=["renameat2", "O_EXCL"])
def without_links(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system without hard links, whose rename can, or cannot, be kept from replacing."""
    monkeypatch.setattr(os, "link", refusing(errno.EOPNOTSUPP))
    if request.param == "O_EXCL":
        monkeypatch.setattr(atomic, "_rename_unless_there", refusing(errno.EINVAL))


def test_without_hard_links_a_file_is_created_once(tmp_path: Path, without_links: None) -> None:
    assert atomic.create_only(tmp_path / "record", b"first")
    assert not atomic.create_only(tmp_path / "record", b"second")
    assert (tmp_path / "record").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["record"]


def test_without_hard_links_one_of_several_writers_wins(tmp_path: Path, without_links: None) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: atomic.create_only(tmp_path / "record", b"%d" % number), range(8)))
    assert sum(won) == 1
    assert (tmp_path / "record").read_bytes() == b"%d" % won.index(True)


def test_a_link_whose_reply_was_lost_is_known_by_the_file_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def repeated(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)  # NFS asks again, and is told that the file exists

    monkeypatch.setattr(os, "link", repeated)
    assert atomic.create_only(tmp_path / "record", b"mine")
    monkeypatch.undo()
    assert not atomic.create_only(tmp_path / "record", b"another's")


def test_a_folder_that_cannot_be_synced_does_not_keep_a_file_from_being_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def files_alone(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", files_alone)
    assert atomic.create_only(tmp_path / "record", b"data")
