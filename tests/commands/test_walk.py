"""Each command of the pages does what it should: all of them, in one home, in an order that they allow."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.trainer.base import processes
from tests.commands.left_out import LEFT_OUT, LONG
from tests.commands.reader import Reader
from tests.commands.walk import WALK
from tests.embedded.slipway import MARK
from tests.s3 import Server

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(5400)]
BENCHMARKS = sorted({command.split()[2] for command, why in LEFT_OUT.items() if why == LONG})


@pytest.fixture
def reader(tmp_path: Path, s3: Server) -> Iterator[Reader]:
    """Somebody with an object store; at the end nothing that they have started is left."""
    yield (somebody := Reader(tmp_path))
    survivors = processes.carrying({MARK: str(tmp_path)})
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)
    assert survivors == [], f"processes left behind by {somebody.folder}"


def test_every_command_that_a_page_prints_does_what_it_should(reader: Reader):
    first, *others = WALK
    wrong = [reader.types(first)]
    reader.prepare()
    wrong += [reader.types(turn) for turn in others]
    assert [complaint for complaint in wrong if complaint] == []


@pytest.mark.parametrize("module", BENCHMARKS)
def test_every_benchmark_that_a_page_names_has_a_help(module: str):
    done = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr  # libraries may warn
    assert module in done.stdout
