"""What tests of real processes share: waiting with a deadline, and the certainty that no process is left."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import hypothesis
import pytest

from slipway.trainer.base import processes

pytest_plugins = [
    "tests.s3",
    "tests.ceph",
    "tests.resources.launchers.rank_records",
    "tests.kubernetes.live",
    "tests.tracked",
    "tests.time_limit",
]

# How long an example takes says how busy the machine is, and nothing of the code.
hypothesis.settings.register_profile("slipway", deadline=None)
hypothesis.settings.load_profile("slipway")

MARK = "SLIPWAY_TEST"
"""In the environment of all that a test starts."""
PATIENCE_SECONDS = 300.0
ENDING_SECONDS = 60.0
"""What processes that have to end, and keep others waiting, may take on a busy machine."""

Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str, seconds: float = PATIENCE_SECONDS) -> Value:
    """The first true value of `condition`; fail when it stays false for so long."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
        time.sleep(0.02)
    return value


class Marked:
    """The live processes that a test has started, directly or not."""

    def __init__(self, mark: dict[str, str]) -> None:
        self.mark = mark

    def pids(self) -> list[int]:
        return processes.carrying(self.mark)

    def running(self, module: str) -> list[int]:
        """Those that run ``python [-P] -m MODULE``, and not as an argument of something else."""
        module_arguments = ["-m", module]
        return [
            pid
            for pid in self.pids()
            if [argument for argument in _arguments(pid)[1:4] if argument != "-P"][:2] == module_arguments
        ]

    def frozen(self) -> list[int]:
        """Those that are stopped."""
        return [pid for pid in self.pids() if _state(pid) == "T"]

    def until_gone(self) -> None:
        until(lambda: not self.pids(), "the test's processes to end")

    def must_be_gone(self) -> None:
        """Fail when some do not end by themselves; these are ended here."""
        deadline = time.monotonic() + ENDING_SECONDS
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        survivors = {pid: " ".join(_arguments(pid)) for pid in self.pids()}
        for pid in survivors:
            os.kill(pid, signal.SIGKILL)
        assert not survivors, "processes left behind"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """Mark all that a test starts; at its end, nothing may be left. What is left all the same is ended here."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    started = Marked({MARK: value})
    yield started
    started.must_be_gone()


def is_asked_to_end(pid: int) -> bool:
    """Whether a SIGTERM waits for a process, which is stopped."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    pending = next(int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd:"))
    return bool(pending >> (signal.SIGTERM - 1) & 1)


def _state(pid: int) -> str:
    """The state of a process as ps shows it; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _arguments(pid: int) -> list[str]:
    """The command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except FileNotFoundError:
        return []
