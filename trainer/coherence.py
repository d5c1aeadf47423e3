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
    found = f"with layout.shard {layout.shard}, layout.tensor {layout.tensor} and layout.pipeline {layout.pipeline}"
    why = "that is for ranks that each hold the whole model (none, 1, 1)"
    require(whole or communication.compression == "none", "communication.compression", f"expected none {found}: {why}")
    require(whole or communication.local_steps == 1, "communication.local_steps", f"expected 1 {found}: {why}")


def _require_meetings(communication: Communication, section: str, every: int) -> None:
    """Between two meetings the ranks' weights differ: there is no model to keep or to measure."""
    steps = communication.local_steps
    require(every % steps == 0, f"{section}.every", f"expected a multiple of communication.local_steps ({steps})")
