"""Lineage: what led to a checkpoint: its configuration, its data, its code, and the training that it continues.

A checkpoint holds its own lineage. A start with other code or another configuration reads there what has changed since.
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
from slipway.trainer.step.hot_updates import LINEAGE as CHANGES


def revision() -> str:
    """The revision of the code that runs; empty where it is not known."""
    return os.environ.get(runtime_info.REVISION, "")


def lineage(
    config: Config, world: World, snapshot: Snapshot, changes: list[list[Any]], before: Mapping[str, Any]
) -> dict[str, Any]:
    """The lineage of a checkpoint that is made now.

    `changes` are the hot updates that the running training has applied. `before` is the lineage of the checkpoint that
    this start began with, its own or that of the training it branches from.
    """
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
    """The digest of the loaded weights that a training, or its parent, began with, and the snapshots behind them.

    The snapshots are null for the weights of another system. The result is empty for drawn weights. Only the first
    start reads the folder of the weights: later it may be gone.
    """
    known = before.get(INITIAL)
    if known and known["snapshots"] is not None:
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
    """The progress after `step`, over a dataset of `samples` samples, with the lineage `now`."""
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
    """The changes since a checkpoint, for the ledger: of the code, and of the training that made it."""
    before = training_progress.lineage.get("revision", "")
    now = revision()
    former = training_progress.config.get("training", config.training)
    return {
        **({"revision": [before, now]} if before != now else {}),
        **({"parent": former} if former != config.training else {}),
    }
