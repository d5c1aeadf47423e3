"""Heartbeats: each rank says where it is, at most once a second, in a file of its own that is replaced.

A heartbeat is written by the training loop itself, not by a thread beside it: a rank that hangs falls
silent. `progress_at` moves only with the step, so that "alive but stuck" can be told from "working".
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer import atomic
from trainer.fence import Token

INTERVAL_SECONDS = 1.0


@dataclass(frozen=True)
class Beat:
    """One rank's last word. Times are seconds since the epoch."""

    rank: int
    phase: str
    step: int
    at: float
    progress_at: float


class Heartbeat:
    """The writer's side."""

    def __init__(self, folder: Path, token: Token, rank: int) -> None:
        self._path = folder / "heartbeats" / f"{token}.{rank:05d}.json"
        self._rank = rank
        self._place: tuple[str, int] | None = None
        self._progress_at = 0.0
        self._written_phase = ""
        self._written_at = 0.0

    def beat(self, phase: str, step: int) -> None:
        """Say that this rank is in `phase` at `step`; written when the phase is new or the last word a second old."""
        now = time.time()
        if (phase, step) != self._place:
            self._place, self._progress_at = (phase, step), now
        if phase == self._written_phase and now - self._written_at < INTERVAL_SECONDS:
            return
        self._written_phase, self._written_at = phase, now
        beat = Beat(self._rank, phase, step, now, self._progress_at)
        atomic.replace(self._path, atomic.canonical_json(asdict(beat)))


def read(folder: Path, token: Token) -> list[Beat]:
    """The last beat of each rank under `token`, by rank."""
    paths = sorted(folder.glob(f"heartbeats/{token}.*.json"))
    return [Beat(**json.loads(path.read_bytes())) for path in paths]
