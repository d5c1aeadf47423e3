"""Progress: the part of a checkpoint that is not tensors, in the file progress.json."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, parsing, regular_file

PROGRESS = "progress.json"
INITIAL = "initial"
"""In the lineage of a checkpoint: the weights that led to it and are not its training's own."""


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
    """The steps so far whose batches were left out: they changed no weight."""
    losses: list[float] = field(default_factory=list)
    """The losses of the last steps, against which the next one is held."""

    def encode(self) -> bytes:
        return atomic.readable_json(asdict(self))


def decode(data: bytes) -> TrainingProgress:
    return TrainingProgress(**parsing.value(data))


def read(folder: Path) -> TrainingProgress:
    """The progress that a checkpoint's folder keeps, with its lineage. Raises ValueError when it cannot be read."""
    try:
        return decode(regular_file.read(folder / PROGRESS))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PROGRESS}: cannot be read: {error}") from None


def trained_on(progress: TrainingProgress) -> list[str]:
    """The snapshots that the weights of a checkpoint were trained on, as far as its lineage says: those of the weights
    that it began with, and its own."""
    before = (progress.lineage.get(INITIAL) or {}).get("snapshots") or ()
    return sorted({*before, progress.lineage["snapshot"]})
