"""The step cache: the results of a dataset's steps, by a key over all inputs of the step.

A step is a pure function, so a result with the same key is reused. A record names the files of the result; if a file is
gone or has another size, the record is ignored and the step runs again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, codec, digest, parsing, regular_file
from slipway.trainer.base.invalid import Invalid
from slipway.trainer.data import shards


@dataclass(frozen=True)
class Record:
    """A step's result as JSON, and the sizes of its files in bytes, by path in the durable tier."""

    inputs: dict[str, Any]
    result: dict[str, Any]
    files: dict[str, int]
    reused: bool
    """Whether the result was reused."""


@dataclass(frozen=True)
class StepCache:
    """The records of one dataset's steps, in the durable tier."""

    durable: Path
    dataset: str

    def once(
        self, step: str, inputs: dict[str, Any], scratch: Path, make: Callable[[], tuple[dict[str, Any], list[Path]]]
    ) -> Record:
        """The step's result for these inputs: the recorded one, or the result and files that `make` returns.

        `scratch` is the dataset's scratch folder.
        """
        record = self.recall(step, inputs)
        if record is None:
            result, paths = make()
            files = {path.relative_to(self.durable).as_posix(): path.stat().st_size for path in paths}
            record = Record(inputs, result, files, reused=False)
            stored = {"inputs": inputs, "result": result, "files": files}
            atomic.replace(self._path(step, inputs), atomic.readable_json(stored), scratch)
        pointer = self._folder / f"{step}.json"
        if _read(pointer) != {"inputs": inputs}:
            for path in record.files:  # they may have had no reference until now
                shards.made_young(self.durable / path)
            atomic.replace(pointer, atomic.readable_json({"inputs": inputs}), scratch)
        return record

    def recall(self, step: str, inputs: dict[str, Any]) -> Record | None:
        """The recorded result for these inputs, if its files still exist."""
        try:
            record = codec.build(Record, {**(_read(self._path(step, inputs)) or {}), "reused": True})
        except Invalid:  # the record is missing or damaged, so the step runs again
            return None
        if atomic.canonical_json(record.inputs) != atomic.canonical_json(inputs):
            return None
        if not all(self._there(path, size) for path, size in record.files.items()):
            return None
        return record

    def latest(self, step: str) -> Record | None:
        """The last result of the step, if its files still exist."""
        pointer = _read(self._folder / f"{step}.json")
        inputs = pointer.get("inputs") if pointer is not None else None
        if not isinstance(inputs, dict):
            return None
        return self.recall(step, inputs)

    def last_made(self, step: str) -> Record:
        """The last result of the step. Raises ValueError if there is none, or its files are gone."""
        record = self.latest(step)
        if record is None:
            raise ValueError(
                f"dataset {self.dataset}: the step {step} has not run, or its files are gone; "
                f"to run it: slipway data build {self.dataset}"
            )
        return record

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
    """The value of a file of the cache; None if the file is missing or damaged."""
    try:
        value = parsing.value(regular_file.read(path))
        atomic.canonical_json(value)  # raises for NaN and infinities, with which inputs cannot be compared
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
