"""A launcher's surroundings: the notes of its ranks, and every process of a test marked."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Marked, until


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


@pytest.fixture(autouse=True)
def every_process_is_marked(marked: Marked) -> None:
    """A launcher test starts processes, whether or not it says so."""
