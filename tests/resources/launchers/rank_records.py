"""The notes of a job's ranks: lines of JSON in its logs, which may vanish with a cancelled job."""

import json
from typing import Any

import pytest

from slipway.resources.launchers.protocol import Launcher
from tests.conftest import until


class RankRecords:
    """All notes of a job that were ever read, each rank's in order."""

    def __init__(self, launcher: Launcher, name: str = "job-1") -> None:
        self._launcher = launcher
        self._name = name
        self._read: dict[str, None] = {}

    def read(self) -> list[dict[str, Any]]:
        """The notes read before, and the new ones."""
        for text in self._launcher.logs(self._name).values():
            self._read.update(dict.fromkeys(line for line in text.splitlines(keepends=True) if _is_note(line)))
        return [json.loads(line) for line in self._read]

    def starts(self) -> list[dict[str, Any]]:
        """One note per rank that started."""
        return [note for note in self.read() if "pid" in note]

    def until(self, key: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait for `count` notes with `key`."""

        def matching_records() -> list[dict[str, Any]]:
            with_key = [note for note in self.read() if key in note]
            return with_key if len(with_key) >= count else []

        return until(matching_records, f"{count} notes with {key!r}")


def _is_note(line: str) -> bool:
    """Whether a line is a complete note."""
    return line.startswith("{") and line.endswith("}\n")


@pytest.fixture
def rank_records(launcher: Launcher) -> RankRecords:
    return RankRecords(launcher)
