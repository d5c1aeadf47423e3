"""Tails: the end of what each node of a failed incarnation wrote, kept beside its exit.

When a person looks into a failure, the job's objects and the logs of its pods are gone; the tails stay.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

from slipway.resources.launchers.protocol import Launcher
from slipway.resources.trainings.job import job_name
from slipway.resources.trainings.store import TrainingStore
from slipway.resources.unavailable import Unavailable
from slipway.trainer.base import codec
from slipway.trainer.record import files

BYTES = 16_384
"""So much is kept of each node."""


def keep(store: TrainingStore, incarnation: int, launcher: Launcher) -> None:
    """Keep the tails of an incarnation, unless they are kept already or the launcher cannot be asked."""
    path = _path(store, incarnation)
    if path.exists():
        return
    with contextlib.suppress(Unavailable):
        if found := launcher.logs(job_name(store.id, incarnation), BYTES):
            codec.create_only(path, found)


def kept(store: TrainingStore, incarnation: int) -> Mapping[str, str]:
    """The tails by node; empty when none were kept."""
    return codec.read_if_whole(_path(store, incarnation), dict[str, str]) or {}


def _path(store: TrainingStore, incarnation: int) -> Path:
    return files.numbered(store.folder, files.TAILS, incarnation)
