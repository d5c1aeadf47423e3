"""The lineage of a checkpoint: the data, the code and the software that it was made with."""

import os
import platform
from typing import Any

import torch

from trainer.config.resolved import Config
from trainer.data import contents
from trainer.data.snapshots import Snapshot
from trainer.node.world import World


def of(config: Config, snapshot: Snapshot, world: World) -> dict[str, Any]:
    """The lineage of what these ranks make."""
    return {
        "snapshot": config.snapshot,
        "tokenizer": contents.tokenizer_digest(snapshot),
        "revision": os.environ.get("SLIPWAY_REVISION", ""),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "world": world.size,
    }
