"""Lineage: what led to a checkpoint, kept in it: the configuration, the data, the code, the training it continues.

Who starts from a checkpoint with other code or another configuration finds here what is different since.
"""

import functools
import os
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from slipway.trainer.checkpoint.disk import progress as kept_progress
from slipway.trainer.checkpoint.disk.progress import INITIAL, TrainingProgress
from slipway.trainer.config import resolved
from slipway.trainer.config.resolved import Config
from slipway.trainer.data import contents
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.node import runtime_info
from slipway.trainer.node.world import World
from slipway.trainer.step.updates import LINEAGE as CHANGES


def revision() -> str:
    """The revision of the code that runs; empty where it is not known."""
    return os.environ.get(runtime_info.REVISION, "")


def lineage(
    config: Config, world: World, snapshot: Snapshot, changes: list[list[Any]], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The lineage of a checkpoint that is made now; `changes` are those that the running training took over, `before`
    is the lineage of the checkpoint that this start began with, its own or that of the training it branches from."""
    return {
        "snapshot": config.snapshot,
        "tokenizer": contents.tokenizer_digest(snapshot),
        "revision": revision(),
        **runtime_info.of_process(),
        "world": world.size,
        **({CHANGES: changes} if changes else {}),
        **({"branch": asdict(config.branch)} if config.branch else {}),
        **_initial(config, before),
    }


def _initial(config: Config, before: Mapping[str, Any]) -> dict[str, Any]:
    """The given weights that a training, or the one it branches from, began with: their digest, and the snapshots that
    they were trained on; null for those of another system. Nothing for drawn weights.

    The folder of the weights is read by the first start alone: later it may be gone.
    """
    if (known := before.get(INITIAL)) and known["snapshots"] is not None:
        return {INITIAL: known}
    if config.init is None:
        return {}
    return {INITIAL: {"digest": config.init.digest, "snapshots": _snapshots(Path(config.placement.init))}}


@functools.lru_cache(maxsize=1)
def _snapshots(folder: Path) -> list[str] | None:
    try:
        return kept_progress.trained_on(kept_progress.read(folder))
    except ValueError:
        return None


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


def since(training_progress: TrainingProgress, config: Config) -> dict[str, Any]:
    """What is different since a checkpoint, for the ledger: the code, and the training that made it."""
    before, now = training_progress.lineage.get("revision", ""), revision()
    former = training_progress.config.get("training", config.training)
    return {
        **({"revision": [before, now]} if before != now else {}),
        **({"parent": former} if former != config.training else {}),
    }
