"""The tutorial leads where it says: each of its commands, in their order, from an empty folder to a champion."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import processes
from tests.embedded.slipway import MARK
from tests.embedded.tutorial import Reader, blocks

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]
PATIENCE_SECONDS = 1500.0


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.CompletedProcess[str]]:
    """The whole of it."""
    reader = Reader(tmp_path_factory.mktemp("reader"))
    try:
        yield reader.types(blocks(), PATIENCE_SECONDS)
    finally:
        survivors = {pid: _command(pid) for pid in processes.carrying({MARK: str(reader.folder)})}
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
    assert survivors == {}, "processes left behind"


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def test_every_command_of_the_tutorial_does_what_it_should(done: subprocess.CompletedProcess[str]):
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert "Traceback" not in done.stdout + done.stderr


def test_its_model_is_the_champion(done: subprocess.CompletedProcess[str]):
    assert "my-model: champion version 1" in done.stdout.splitlines()


def test_its_second_training_is_one_of_its_own_on_more_texts(done: subprocess.CompletedProcess[str]):
    assert "documents removed: 0" in done.stdout and "documents changed: 0" in done.stdout
    assert {"150/150", "60/60"} <= {word for line in done.stdout.splitlines() for word in line.split()}
