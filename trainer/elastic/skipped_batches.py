"""Skipped batches: the steps of a training whose batches are skipped, on record for every later start and replay.

    skipped/<step>.json     why this step's batch is skipped

A skipped step counts and changes nothing: the sample order of all other steps stays the same. The name of a record
alone marks the step as skipped; the record holds the reason.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec, regular_file
from slipway.trainer.record import files

FORMAT = "slipway.skipped/1"


@dataclass(frozen=True)
class SkippedBatch:
    """The reason for which the batch of a step is skipped."""

    step: int
    detected_step: int
    """The step at which the reason was found: several batches may be skipped for one reason."""
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
    """The skipped steps, each with the step at which the reason was found. Raises OSError."""
    steps = [int(name) for name in files.names(store, files.SKIPPED) if name.isdigit()]
    return {step: _detected_step(store, step) for step in steps}


def copy(source: Path, target: Path, after: int) -> None:
    """Skip in `target`, which branches from `source` after a step, the later batches that `source` skips.

    Raises OSError.
    """
    for step in read(source):
        if step > after:
            atomic.create_only(path(target, step), regular_file.read(path(source, step)))


def reasons(skipped: dict[int, int], step: int, within: int) -> list[int]:
    """The steps at which a reason to skip batches was found, among the last `within` steps up to `step`."""
    return sorted({detected_step for detected_step in skipped.values() if step - within < detected_step <= step})


def listed(steps: Iterable[int]) -> str:
    return ", ".join(map(str, steps))


def path(store: Path, step: int) -> Path:
    """The path of a step's record."""
    return files.named(store, files.SKIPPED, f"{step:09d}")


def _detected_step(store: Path, step: int) -> int:
    record = codec.read_if_whole(path(store, step), SkippedBatch, FORMAT)
    return record.detected_step if record else step
