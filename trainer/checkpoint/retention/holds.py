"""Holds: a process that reads checkpoints by name (a replay) keeps them from being removed while it lasts.

``<store>/holds/<commit>.<random>.json`` is one hold, removed at the end. One that a killed process left counts for
`DAYS` from its time.
"""

import contextlib
import secrets
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.base import codec, listing
from trainer.record import files

FORMAT = "slipway.hold/1"
DAYS = 7.0
"""Longer than any process reads the checkpoints that it holds; the clocks of machines differ by far less."""


@dataclass(frozen=True)
class Hold:
    """Who keeps a commit from being removed, why, and since when, in seconds since the epoch."""

    commit: str
    by: str
    why: str
    at: float


@contextlib.contextmanager
def held(store: Path, commits: Iterable[str], by: str, why: str) -> Iterator[None]:
    """Hold the commits of these names. Raises OSError."""
    made = []
    try:
        for name in commits:
            path = files.named(store, files.HOLDS, f"{name}.{secrets.token_hex(4)}")
            codec.create_only(path, Hold(name, by, why, time.time()), FORMAT)
            made.append(path)
        yield
    finally:
        for path in made:
            path.unlink(missing_ok=True)


def reasons(store: Path, commit: str, now: float) -> list[str]:
    """Why a commit is held at a time. A hold that cannot be decoded counts. Raises OSError."""
    found = []
    for name in listing.names_if_there(store / files.HOLDS, ".json"):
        if name.startswith(f"{commit}."):
            found += _reason(files.named(store, files.HOLDS, name), now)
    return found


def _reason(path: Path, now: float) -> list[str]:
    try:
        hold = codec.read(path, Hold, FORMAT)
    except FileNotFoundError:
        return []
    except codec.UndecodableRecord as error:
        return [str(error)]
    return [f"{hold.by} holds it: {hold.why}"] if now - hold.at < DAYS * 86_400 else []
