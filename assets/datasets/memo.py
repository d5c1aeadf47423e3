"""Memo: what each step of a dataset made, by a key over everything that went into it.

A step is a pure function, so a result with the same key need not be made again. A record names the files the
result consists of; when one is gone or has another size, the record is forgotten and the step runs anew.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer import atomic, digest


@dataclass(frozen=True)
class Record:
    """A step's result, as plain JSON, and its files: bytes by path relative to the durable tier."""

    inputs: dict[str, Any]
    result: dict[str, Any]
    files: dict[str, int]
    reused: bool
    """Whether it was there already when it was asked for."""


@dataclass(frozen=True)
class Memo:
    """The memory of one dataset's steps, in the durable tier."""

    durable: Path
    dataset: str

    def once(
        self, step: str, inputs: dict[str, Any], shop: Path, make: Callable[[], tuple[dict[str, Any], list[Path]]]
    ) -> Record:
        """The step's result for these inputs: the remembered one, or what `make` gives (a result and its files).

        `shop` is the dataset's workshop.
        """
        record = self.recall(step, inputs)
        if record is None:
            result, paths = make()
            files = {path.relative_to(self.durable).as_posix(): path.stat().st_size for path in paths}
            record = Record(inputs, result, files, reused=False)
            stored = {"inputs": inputs, "result": result, "files": files}
            atomic.replace(self._path(step, inputs), atomic.readable_json(stored), shop)
        atomic.replace(self._folder / f"{step}.json", atomic.readable_json({"inputs": inputs}), shop)
        return record

    def recall(self, step: str, inputs: dict[str, Any]) -> Record | None:
        """The result for these inputs if it was made before and its files are still there."""
        stored = _read(self._path(step, inputs))
        if stored is None or atomic.canonical_json(stored["inputs"]) != atomic.canonical_json(inputs):
            return None
        if not all(self._there(path, size) for path, size in stored["files"].items()):
            return None
        return Record(**stored, reused=True)

    def latest(self, step: str) -> Record | None:
        """The result that the step gave last, if its files are still there."""
        pointer = _read(self._folder / f"{step}.json")
        return None if pointer is None else self.recall(step, pointer["inputs"])

    @property
    def _folder(self) -> Path:
        return self.durable / "datasets" / self.dataset / "steps"

    def _path(self, step: str, inputs: dict[str, Any]) -> Path:
        key = digest.of_bytes(atomic.canonical_json(inputs))
        return self._folder / f"{step}-{key[:16]}.json"

    def _there(self, path: str, size: int) -> bool:
        file = self.durable / path
        return file.is_file() and file.stat().st_size == size


def _read(path: Path) -> dict[str, Any] | None:
    """A file of the memory; one that is missing or damaged remembers nothing."""
    try:
        value: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value
