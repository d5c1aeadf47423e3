"""Progress: the part of a checkpoint that is not tensors, in the file progress.json."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, parsing, regular_file

PROGRESS = "progress.json"
INITIAL = "initial"
"""In the lineage of a checkpoint: the initial weights that its training loaded."""


@dataclass(frozen=True)
class TrainingProgress:
    """The position of a training at a step, and the configuration and data that led to it."""

    step: int
    """Steps done; the learning rate is a function of it."""
    samples: int
    """Samples consumed; the position in the data follows from it alone."""
    epoch: int
    metrics: dict[str, float]
    best: dict[str, float]
    """The lowest validation loss so far and its step; empty before the first validation."""
    config: dict[str, Any]
    lineage: dict[str, Any]
    at: float
    random_states: list[dict[str, Any]] = field(default_factory=list)
    """One for each rank; added when the checkpoint is written."""
    values: dict[str, Any] = field(default_factory=dict)
    """The values of the optimiser and the engine that are not tensors, of all ranks, by name."""
    skipped: list[int] = field(default_factory=list)
    """The steps so far whose batches were skipped: they changed no weight."""
    losses: list[float] = field(default_factory=list)
    """The losses of the last steps, with which the next one is compared."""

    def encode(self) -> bytes:
        return atomic.readable_json(asdict(self))


def decode(data: bytes) -> TrainingProgress:
    return TrainingProgress(**parsing.value(data))


def read(folder: Path) -> TrainingProgress:
    """The progress in a checkpoint's folder, with its lineage. Raises ValueError if it cannot be read."""
    try:
        return decode(regular_file.read(folder / PROGRESS))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PROGRESS}: cannot be read: {error}") from None


def trained_on(progress: TrainingProgress) -> list[str]:
    """The snapshots of a checkpoint's training and, as far as its lineage has them, of its initial weights."""
    before = (progress.lineage.get(INITIAL) or {}).get("snapshots") or ()
    return sorted({*before, progress.lineage["snapshot"]})
