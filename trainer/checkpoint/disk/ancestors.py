"""Ancestors: what the weights of a checkpoint were trained on, by the lineage that it keeps.

It reads without torch, so that the control plane can ask.
"""

from pathlib import Path

from slipway.trainer.base import regular_file
from slipway.trainer.checkpoint.disk import progress
from slipway.trainer.checkpoint.disk.progress import PROGRESS, TrainingProgress

INITIAL = "initial"
"""In the lineage of a checkpoint: the weights that led to it and are not its training's own."""


def read(folder: Path) -> TrainingProgress:
    """The progress that a checkpoint's folder keeps, with its lineage. Raises ValueError when it cannot be read."""
    try:
        return progress.decode(regular_file.read(folder / PROGRESS))
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / PROGRESS}: cannot be read: {error}") from None


def trained_on(kept: TrainingProgress) -> list[str]:
    """The snapshots that the weights of a checkpoint were trained on, as far as its lineage says: those of the weights
    that it began with, and its own."""
    before = (kept.lineage.get(INITIAL) or {}).get("snapshots") or ()
    return sorted({*before, kept.lineage["snapshot"]})
