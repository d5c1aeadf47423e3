"""A launcher's surroundings: its folder, the notes of its ranks, and the certainty that no process is left."""

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainer import processes

PATIENCE_SECONDS = 60.0

Value = TypeVar("Value")


def until(condition: Callable[[], Value], what: str) -> Value:
    """The first true value of `condition`; fail when it stays false for a minute."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:.0f} s in vain for {what}"
        time.sleep(0.05)
    return value


class Notes:
    """What the ranks of one test wrote down."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def starts(self) -> list[dict[str, Any]]:
        """One note per rank that started."""
        return [note for note in self.read() if "pid" in note]

    def until(self, key: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for `count` notes with `key`."""

        def found() -> list[dict[str, Any]]:
            with_key = [fact for fact in self.read() if key in fact]
            return with_key if len(with_key) >= count else []

        return until(found, f"{count} notes with {key!r}")


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path / "notes.jsonl")


class Marked:
    """The live processes that a test has started, directly or not."""

    def __init__(self, mark: dict[str, str]) -> None:
        self.mark = mark

    def pids(self) -> list[int]:
        return processes.carrying(self.mark)

    def until_gone(self) -> None:
        until(lambda: not self.pids(), "the test's processes to end")


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Marked]:
    """Mark all that a test starts; at its end, nothing may be left. What is left all the same is ended here."""
    name, value = "SLIPWAY_TEST", uuid.uuid4().hex
    monkeypatch.setenv(name, value)
    started = Marked({name: value})
    yield started
    deadline = time.monotonic() + 10
    while started.pids() and time.monotonic() < deadline:
        time.sleep(0.05)
    left = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ") for pid in started.pids()}
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "processes left behind"
