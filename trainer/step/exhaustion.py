"""Out of memory: recognised among other errors, and answered by a smaller micro-batch, which the next start takes too.

A single process repeats the step. Among several ranks, the others wait inside a step that will not end: the smaller
size is noted in the training's store and this rank ends, so that all ranks are started again.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from trainer.base import codec
from trainer.config.resolved import Config
from trainer.record import causes, files

ADVICE = "divide the model (layout.shard, layout.tensor), recompute (layout.activations), or shorten its samples"


@dataclass(frozen=True)
class MicroBatchNote:
    """The micro-batch that fitted, and the ranks and the layout that it fitted in."""

    micro: int
    where: Mapping[str, Any]


class OutOfMemory(causes.Failure):
    """There is not enough memory for a step; the message says what was done, or what the user can do."""

    def __init__(self, message: str, answered: bool = False) -> None:
        super().__init__(message)
        self.kind = causes.ANSWERED if answered else causes.OUT_OF_MEMORY
        """Whether the next start takes a smaller micro-batch."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host (whose allocator has no error of its own)."""
    hosts = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return hosts or isinstance(error, torch.OutOfMemoryError | MemoryError)


def note_micro_batch(config: Config, ranks: int, micro: int) -> None:
    """Note the micro-batch that the next start must take."""
    codec.replace(_path(config), MicroBatchNote(micro, _where(config, ranks)))


def noted_micro_batch(config: Config, ranks: int) -> int:
    """The configuration's micro-batch, or a smaller one that as many ranks in the same layout have noted."""
    found = codec.read_if_whole(_path(config), MicroBatchNote)
    if found is None or found.where != _where(config, ranks):
        return config.batch.micro
    return min(config.batch.micro, found.micro)


def _where(config: Config, ranks: int) -> dict[str, Any]:
    return {"ranks": ranks, **asdict(config.layout)}


def _path(config: Config) -> Path:
    return Path(config.placement.store) / files.MICRO_BATCH
