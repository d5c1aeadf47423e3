"""A build on a full disk reports it, damages no file, and succeeds once there is room again."""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slipway.assets.datasets.building import workers
from slipway.assets.datasets.documents import document_table, extraction
from slipway.assets.datasets.snapshots import pointer
from tests.assets.datasets.builds import build, content, rebuild, strays, texts_of
from tests.assets.datasets.corpora import recipe_for, write_file
from tests.disks import mounted

DISK_KIB = 16_384
KIB = 1024


@pytest.fixture
def disk(tmp_path) -> Iterator[Path]:
    """A separate file system of `DISK_KIB`."""
    with mounted(tmp_path / "disk", f"size={DISK_KIB}k") as folder:
        yield folder


@contextmanager
def room(disk: Path, kib: int) -> Iterator[None]:
    """A context in which only so many KiB of the disk are free."""
    ballast, stat = disk / "ballast", os.statvfs(disk)
    ballast.write_bytes(bytes(stat.f_bavail * stat.f_frsize - kib * KIB))
    try:
        yield
    finally:
        ballast.unlink()


def write_texts(folder: Path, seed: int, count: int) -> None:
    """Texts of words that do not compress well, about 20 KiB each."""
    chosen = random.Random(seed)
    for number in range(count):
        text = " ".join(f"{chosen.getrandbits(32):x}" for _ in range(2400))
        write_file(folder / f"text{seed}-{number}.txt", text)


def recipe_of(folder: Path):
    return recipe_for(folder, shard_tokens=20_000, cleaning={})


@pytest.mark.slow
@pytest.mark.parametrize("kib", [4, 900, 1300])
def test_a_build_on_a_full_disk_names_the_file_and_damages_nothing(disk, tmp_path, kib):
    corpus, durable = tmp_path / "corpus", disk / "durable"
    write_texts(corpus, seed=0, count=5)
    parent = build(recipe_of(corpus), durable)
    before, texts = content(durable), texts_of(parent, durable, "train")
    write_texts(corpus, seed=1, count=50)

    with room(disk, kib), pytest.raises(OSError, match=rf"No space left on device: '{durable}/.+'") as error:
        build(recipe_of(corpus), durable)
    assert error.value.errno == errno.ENOSPC
    assert strays(durable) == []
    assert before.items() <= content(durable).items()
    assert pointer.current(durable, "small-corpus") == parent.sha256
    assert texts_of(parent, durable, "train") == texts

    snapshot = build(recipe_of(corpus), durable)
    assert rebuild(recipe_of(corpus), tmp_path / "anew", durable).manifest() == snapshot.manifest()
    assert content(tmp_path / "anew").items() <= content(durable).items()


def test_every_file_of_an_attempt_on_a_full_disk_is_complete(disk, tmp_path):
    corpus, durable = tmp_path / "corpus", disk / "durable"
    write_texts(corpus, seed=0, count=50)
    build(recipe_of(corpus), tmp_path / "whole")
    durable.mkdir()
    for kib in range(100, 2500, 400):
        with room(disk, kib):
            try:
                build(recipe_of(corpus), durable)
            except OSError as error:
                assert error.errno == errno.ENOSPC
        assert content(durable).items() <= content(tmp_path / "whole").items()
    build(recipe_of(corpus), durable)
    assert content(durable) == content(tmp_path / "whole")


def test_a_worker_on_a_full_disk_names_the_file_too(disk, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "WORTH_A_PROCESS", 0)
    monkeypatch.setattr(extraction, "UNIT_FILES", 5)
    write_texts(tmp_path / "corpus", seed=0, count=10)
    (disk / "durable").mkdir()
    with room(disk, 20), pytest.raises(OSError, match=r"No space left on device: '.+/building/.+\.parquet'"):
        build(recipe_of(tmp_path / "corpus"), disk / "durable")
    assert strays(disk) == []


def test_a_comparison_that_cannot_spill_names_the_full_disk(disk, monkeypatch):
    monkeypatch.setattr(document_table, "MEMORY", "16MB")
    with (
        room(disk, 500),
        pytest.raises(OSError, match=f"No space left on device: '{disk}/spill'"),
        document_table.connect(disk) as connection,
    ):
        connection.execute("CREATE TABLE large AS SELECT hash(range) AS hash FROM range(5_000_000)")
