"""Atomic writes: whole or absent, and of several writers of one path exactly one wins."""

import json
import multiprocessing
import stat
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_SECONDS
from trainer import atomic


def names(folder: Path) -> list[str]:
    """All that lies in a folder, temporary files included."""
    return sorted(path.name for path in folder.iterdir())


def test_create_only_makes_the_folders_on_the_way(tmp_path: Path) -> None:
    assert atomic.create_only(tmp_path / "a" / "b" / "file", b"first")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"first"


def test_create_only_says_false_and_changes_nothing_when_the_file_is_there(tmp_path: Path) -> None:
    atomic.create_only(tmp_path / "file", b"first")
    assert not atomic.create_only(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert names(tmp_path) == ["file"]


def test_of_several_processes_that_create_one_file_exactly_one_wins(tmp_path: Path) -> None:
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
    seen = set()
    while writer.is_alive():
        seen.add(path.read_bytes())
    writer.join()
    assert seen == set(contents)
    assert names(tmp_path) == ["file"]


def test_files_are_readable_for_everybody(tmp_path: Path) -> None:
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


def test_equal_values_have_one_canonical_spelling() -> None:
    assert atomic.canonical_json({"b": [1, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'.encode()


@pytest.mark.parametrize("spell", [atomic.canonical_json, atomic.readable_json])
def test_json_has_no_nan(spell) -> None:
    with pytest.raises(ValueError):
        spell({"loss": float("nan")})


def test_readable_json_reads_back(tmp_path: Path) -> None:
    value = {"loss": 1.25, "names": ["é", "\n"], "none": None}
    assert json.loads(atomic.readable_json(value)) == value
