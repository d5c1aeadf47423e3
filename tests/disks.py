"""Small file systems for tests, to be filled for real, and to stand still."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs with these options ("size=64k") at `folder`; skips the test where mounting is not allowed."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        # Lazily: a process that is about to end may have it open still.
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def freezable(folder: Path, megabytes: int) -> Iterator[Path]:
    """A disk at `folder`, a file beside it, that `frozen` stops; skips the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    image = folder.with_name(f"{folder.name}.image")
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop,noatime", str(image), str(folder)]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError as error:
            pytest.skip(f"there is no {error.filename} here")
        if done.returncode:
            pytest.skip(f"no disk can be made here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        image.unlink()


@contextlib.contextmanager
def frozen(folder: Path) -> Iterator[None]:
    """The disk at `folder` takes no write meanwhile: who writes to it waits."""
    subprocess.run(["fsfreeze", "--freeze", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", str(folder)], check=True)
