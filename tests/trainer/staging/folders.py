"""What the tests of staging look at and do: a node's folder, damage of every kind, a staging in its middle."""

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from slipway.trainer.base import verify
from slipway.trainer.data import shards

ROOT = Path(__file__).parents[3]


def staging_process(sha256: str, origins: list[Path], nvme: Path, *more: str) -> "subprocess.Popen[str]":
    """The command, as a person runs it on a node."""
    sources = [argument for origin in origins for argument in ("--from", str(origin))]
    command = [
        sys.executable,
        "-m",
        "slipway.cli",
        "data",
        "stage",
        sha256,
        *sources,
        "--to",
        str(nvme),
        "--json",
        *more,
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def assert_whole(snapshot: shards.TextSnapshot, nvme: Path) -> None:
    """The snapshot is there to the last byte, and nothing that is not named by a digest."""
    assert shards.read_manifest(nvme, snapshot.sha256) == snapshot
    for shard in snapshot.shards():
        assert verify.measure(shards.shard_path(nvme, shard)).blake3 == shard.blake3
    assert partial_copies(nvme) == []


def assert_nothing_wrong_is_visible(nvme: Path) -> None:
    """What lies under a shard's name has the content of that name."""
    for path in (nvme / "shards").glob("*"):
        assert verify.measure(path).blake3 == path.stem


def partial_copies(nvme: Path) -> list[Path]:
    return list((nvme / "partial").glob("*"))


def flip_a_bit(path: Path, where: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * where)] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    os.truncate(path, 100)


def grow(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def swap(path: Path) -> None:
    """Give the file the content of another shard, and that one the file's."""
    other = next(one for one in sorted(path.parent.iterdir()) if one != path)
    content, other_content = path.read_bytes(), other.read_bytes()
    path.write_bytes(other_content)
    other.write_bytes(content)


DAMAGES: list[Callable[[Path], None]] = [flip_a_bit, cut_short, grow, Path.unlink, swap]


def damaged_at_random(path: Path, draw: random.Random) -> None:
    """One of the damages; a flipped bit anywhere in the file."""
    damage = draw.choice(DAMAGES)
    if damage is flip_a_bit:
        flip_a_bit(path, draw.random())
    else:
        damage(path)


@contextlib.contextmanager
def half_a_shard(source: Path) -> Iterator[bytes]:
    """A source that gives the first 1,000 bytes and then waits, so that a copy is in its middle for sure.

    Yields the rest; afterwards the file is as it was.
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


def copies_in_the_middle(nvme: Path) -> list[Path]:
    """The partial copies that have come as far as `half_a_shard` lets them."""
    with contextlib.suppress(FileNotFoundError):
        return [path for path in partial_copies(nvme) if path.stat().st_size == 1000]
    return []


def is_in_mid_copy(nvme: Path) -> bool:
    return len(copies_in_the_middle(nvme)) > 0
