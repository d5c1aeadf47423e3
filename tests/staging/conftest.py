"""A durable tier with a small snapshot, a replica of it, and a node's empty NVMe."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.snapshots import make_snapshot
from trainer import shards


@pytest.fixture
def durable(tmp_path: Path) -> Path:
    return tmp_path / "durable"


@pytest.fixture
def nvme(tmp_path: Path) -> Path:
    return tmp_path / "nvme"


@pytest.fixture
def snapshot(durable: Path) -> shards.Snapshot:
    return make_snapshot(durable)


@pytest.fixture
def replica(snapshot: shards.Snapshot, durable: Path, tmp_path: Path) -> Path:
    """A second tier that holds the same."""
    return shutil.copytree(durable, tmp_path / "replica")


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
