"""Watched: a slow process is let alone, and one that does nothing is ended with all below it."""

import sys
import time
from pathlib import Path

import pytest

from slipway.resources import idle_timeout
from tests.conftest import Marked

STOPS = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
STOPS_BELOW = f"import subprocess, sys; subprocess.call([sys.executable, '-c', {STOPS!r}])"
WORKS = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize("program", [STOPS, STOPS_BELOW])
def test_a_process_that_does_nothing_is_ended(tmp_path: Path, marked: Marked, program: str):
    begun = time.monotonic()
    with pytest.raises(idle_timeout.Idle, match=r"process \d+ did nothing for 1 s, and was killed"):
        idle_timeout.run([sys.executable, "-c", program], tmp_path, idle_seconds=1.0)
    assert time.monotonic() - begun < 30
    marked.until_gone()


def test_a_process_that_works_for_longer_is_not_ended(tmp_path: Path, marked: Marked):
    assert idle_timeout.run([sys.executable, "-c", WORKS], tmp_path, idle_seconds=2.0).code == 0


def test_how_a_process_failed_is_reported(tmp_path: Path, marked: Marked):
    ended = idle_timeout.run([sys.executable, "-c", "raise SystemExit('no such model')"], tmp_path)
    assert (ended.code, ended.error.strip()) == (1, "no such model")
