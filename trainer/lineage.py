"""Lineage: what led to a checkpoint, kept in it: the configuration, the data, the code, the training it continues.

Who starts from a checkpoint with other code or another configuration finds here what is different since.
"""

import os
import platform
import time
from dataclasses import asdict
from typing import Any

import torch

from trainer.checkpoint.disk.progress import TrainingProgress
from trainer.config import resolved
from trainer.config.resolved import Config
from trainer.data import contents
from trainer.data.snapshots import Snapshot
from trainer.node.world import World
from trainer.step.updates import LINEAGE as CHANGES

REVISION = "SLIPWAY_REVISION"
"""The variable with the revision of the code that runs."""


def revision() -> str:
    """The revision of the code that runs; empty where it is not known."""
    return os.environ.get(REVISION, "")


def lineage(config: Config, world: World, snapshot: Snapshot, changes: list[list[Any]]) -> dict[str, Any]:
    """The lineage of a checkpoint that is made now; `changes` are those that the running training took over."""
    return {
        "snapshot": config.snapshot,
        "tokenizer": contents.tokenizer_digest(snapshot),
        "revision": revision(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "world": world.size,
        **({CHANGES: changes} if changes else {}),
        **({"branch": asdict(config.branch)} if config.branch else {}),
    }


def progress(
    config: Config, step: int, samples: int, metrics: dict[str, float], best: dict[str, float], now: dict[str, Any]
) -> TrainingProgress:
    """The progress after `step`, over a dataset of so many samples, with the lineage `now`."""
    done = step * config.batch.sequences
    return TrainingProgress(
        step=step,
        samples=done,
        epoch=done // samples,
        metrics=metrics,
        best=best,
        config=resolved.dump(config),
        lineage=now,
        at=time.time(),
    )


def since(kept: TrainingProgress, config: Config) -> dict[str, Any]:
    """What is different since a checkpoint, for the ledger: the code, and the training that made it."""
    before, now = kept.lineage.get("revision", ""), revision()
    former = kept.config.get("training", config.training)
    return {
        **({"revision": [before, now]} if before != now else {}),
        **({"parent": former} if former != config.training else {}),
    }
