"""Tails: the end of what each node of a failed incarnation wrote, kept beside its exit.

The job's objects, and its pods' logs with them, are gone when a person looks into it; these stay.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from resources.launcher.protocol import Launcher, Unavailable
from resources.training_job import job_name
from resources.training_store import TrainingStore
from trainer import atomic

BYTES = 16_384
"""Of each node."""


def keep(store: TrainingStore, incarnation: int, launcher: Launcher) -> None:
    """Keep the tails of an incarnation, unless there are some or the launcher cannot be asked: it is a service."""
    path = _path(store, incarnation)
    if path.exists():
        return
    with contextlib.suppress(Unavailable):
        if found := launcher.logs(job_name(store.id, incarnation), BYTES):
            atomic.create_only(path, atomic.readable_json(found))


def kept(store: TrainingStore, incarnation: int) -> Mapping[str, str]:
    """By node; empty when there are none."""
    try:
        found: dict[str, str] = json.loads(_path(store, incarnation).read_bytes())
    except FileNotFoundError:
        return {}
    return found


def _path(store: TrainingStore, incarnation: int) -> Path:
    return store.folder / "tails" / f"{incarnation:06d}.json"
