"""Coherence: what one section of a configuration requires of another; checked before a training starts."""

from slipway.trainer.base.invalid import require
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Checkpoint, Communication, Validation

SHARED = "ranks that share a sequence need the same weights at every step"


def check(communication: Communication, layout: Layout, checkpoint: Checkpoint, validation: Validation) -> None:
    """Raises Invalid, with the dotted field and the numbers that do not fit."""
    _require_whole_models(communication, layout)
    _require_whole_rounds(communication, "checkpoint", checkpoint.every)
    _require_whole_rounds(communication, "validation", validation.every)


def _require_whole_models(communication: Communication, layout: Layout) -> None:
    """PowerSGD, which keeps what it left out on each rank, and local updates need ranks that hold the whole model."""
    holds_whole_model = (layout.shard, layout.tensor, layout.pipeline) == ("none", 1, 1)
    context = f"with layout.shard {layout.shard}, layout.tensor {layout.tensor} and layout.pipeline {layout.pipeline}"
    why = "that is for ranks that each hold the whole model (none, 1, 1)"
    sent = communication.compression
    require(
        holds_whole_model or sent != "powersgd",
        "communication.compression",
        f"expected none, bf16 or fp16 {context}: {why}",
    )
    require(
        holds_whole_model or communication.local_steps == 1, "communication.local_steps", f"expected 1 {context}: {why}"
    )
    shared = communication.local_steps > 1 and layout.context > 1
    require(not shared, "communication.local_steps", f"expected 1 with layout.context {layout.context}: {SHARED}")


def _require_whole_rounds(communication: Communication, section: str, every: int) -> None:
    """With local updates, the ranks have one model to keep or measure only after their weights are averaged."""
    steps = communication.local_steps
    require(every % steps == 0, f"{section}.every", f"expected a multiple of communication.local_steps ({steps})")
