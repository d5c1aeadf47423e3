"""progress.json: all of a checkpoint that is not a tensor."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from trainer import atomic


@dataclass(frozen=True)
class Progress:
    """Where the training was, and what it came from."""

    step: int
    """Steps done; the learning rate is a function of it."""
    samples: int
    """Samples consumed: the whole of the data position."""
    epoch: int
    metrics: dict[str, float]
    best: dict[str, float]
    """The lowest validation loss so far and its step; empty before the first validation."""
    config: dict[str, Any]
    lineage: dict[str, Any]
    at: float
    random_states: list[dict[str, Any]] = field(default_factory=list)
    """One a rank; gathered when the checkpoint is written."""
    values: dict[str, Any] = field(default_factory=dict)
    """What of the optimiser and the engine is not a tensor, of all ranks, by name."""

    def encode(self) -> bytes:
        return atomic.readable_json(asdict(self))


def decode(data: bytes) -> Progress:
    return Progress(**json.loads(data))
