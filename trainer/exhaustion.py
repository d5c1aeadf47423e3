"""Out of memory: told from other errors, and answered by a smaller micro-batch, which the next start knows of.

One process shrinks where it stands. Among several, the others wait inside a step that will not end: the size is noted
in the training's store, and this rank ends, so that all are started again.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from trainer import atomic
from trainer.config import Config

ADVICE = "divide the model (layout.shard, layout.tensor), recompute (layout.activations), or shorten its samples"


class OutOfMemory(Exception):
    """There is not enough memory for a step; what was done about it, or can be."""


def exhausted(error: BaseException) -> bool:
    """Whether memory ran out, on the device or on the host (whose allocator has no error of its own)."""
    hosts = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return hosts or isinstance(error, torch.OutOfMemoryError | MemoryError)


def note(config: Config, ranks: int, micro: int) -> None:
    """Leave the micro-batch that the next start is to take."""
    atomic.replace(_path(config), atomic.readable_json({"micro": micro, "where": _where(config, ranks)}))


def noted(config: Config, ranks: int) -> int:
    """The micro-batch to take: the configuration's, or a smaller one noted by as many ranks in the same layout."""
    try:
        found = json.loads(_path(config).read_bytes())
    except FileNotFoundError:
        return config.batch.micro
    return min(config.batch.micro, found["micro"]) if found["where"] == _where(config, ranks) else config.batch.micro


def _where(config: Config, ranks: int) -> dict[str, Any]:
    return {"ranks": ranks, **asdict(config.layout)}


def _path(config: Config) -> Path:
    return Path(config.placement.store) / "micro.json"
