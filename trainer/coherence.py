"""Coherence: what the sections of a configuration ask of one another; checked before anything runs."""

from trainer.invalid import require
from trainer.operation import Layout
from trainer.sections import Checkpoint, Communication, Validation


def check(communication: Communication, layout: Layout, checkpoint: Checkpoint, validation: Validation) -> None:
    """Raises Invalid, with the dotted field and the numbers that do not fit."""
    _require_whole_models(communication, layout)
    _require_meetings(communication, "checkpoint", checkpoint.every)
    _require_meetings(communication, "validation", validation.every)


def _require_whole_models(communication: Communication, layout: Layout) -> None:
    """Compressed gradients and local updates are for ranks that each hold the whole model."""
    whole = (layout.shard, layout.tensor, layout.pipeline) == ("none", 1, 1)
    found = f"layout.shard {layout.shard}, layout.tensor {layout.tensor} and layout.pipeline {layout.pipeline}"
    compression = communication.compression
    message = f"found {compression}, expected none with {found}: only DDP's gradients (none, 1, 1) are compressed"
    require(whole or compression == "none", "communication.compression", message)
    steps = communication.local_steps
    message = f"found {steps}, expected 1 with {found}: only whole models (none, 1, 1) are trained apart"
    require(whole or steps == 1, "communication.local_steps", message)


def _require_meetings(communication: Communication, section: str, every: int) -> None:
    """Between two meetings the ranks' weights differ: there is no model to keep or to measure."""
    steps = communication.local_steps
    message = f"found {every}, expected a multiple of communication.local_steps ({steps})"
    require(every % steps == 0, f"{section}.every", message)
