"""Skipped batches: the steps of a training whose batches are left out, on record for every later start and replay.

    skipped/<step>.json     why this step's batch is left out

A step that is left out is counted and changes nothing: the sample order of all other steps stays as it is. The name of
a record alone says that the step is left out; what it holds says why.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec, regular_file
from slipway.trainer.record import files

FORMAT = "slipway.skipped/1"


@dataclass(frozen=True)
class SkippedBatch:
    """Why the batch of a step is left out."""

    step: int
    found: int
    """The step at which the reason was found: several batches may be left out for one reason."""
    kind: str
    """Of `slipway.trainer.record.causes`."""
    reason: str
    token: str
    at: float
    """Seconds since the epoch, by the clock of rank 0's node."""


def note(store: Path, batch: SkippedBatch) -> bool:
    """Write the record; the first one of a step stands. Raises OSError."""
    return codec.create_only(path(store, batch.step), batch, FORMAT)


def read(store: Path) -> dict[int, int]:
    """The steps that are left out, each with the step at which the reason was found. Raises OSError."""
    steps = [int(name) for name in files.names(store, files.SKIPPED) if name.isdigit()]
    return {step: _found_at(store, step) for step in steps}


def copy(source: Path, target: Path, after: int) -> None:
    """Leave out in `target`, which continues `source` after a step, the later batches that `source` leaves out.

    Raises OSError.
    """
    for step in read(source):
        if step > after:
            atomic.create_only(path(target, step), regular_file.read(path(source, step)))


def reasons(skipped: dict[int, int], step: int, within: int) -> list[int]:
    """The steps at which a reason to leave out batches was found, among the last `within` steps up to `step`."""
    return sorted({found_step for found_step in skipped.values() if step - within < found_step <= step})


def listed(steps: Iterable[int]) -> str:
    """Steps in words."""
    return ", ".join(map(str, steps))


def path(store: Path, step: int) -> Path:
    """Where the record of a step lies."""
    return files.named(store, files.SKIPPED, f"{step:09d}")


def _found_at(store: Path, step: int) -> int:
    record = codec.read_if_whole(path(store, step), SkippedBatch, FORMAT)
    return record.found if record else step
