"""A durable tier with a small snapshot, a replica of it, and a node's empty NVMe."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.data import shards
from tests.assets.datasets.snapshots import make_snapshot
from tests.disks import mounted


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    return tmp_path / "durable"


@pytest.fixture
def nvme(tmp_path: Path) -> Path:
    return tmp_path / "nvme"


@pytest.fixture
def snapshot(durable: Path) -> shards.TextSnapshot:
    return make_snapshot(durable)


@pytest.fixture
def replica(snapshot: shards.TextSnapshot, durable: Path, tmp_path: Path) -> Path:
    """A second tier that holds the same."""
    return shutil.copytree(durable, tmp_path / "replica")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    with mounted(tmp_path / "small", "size=64k") as disk:
        yield disk
