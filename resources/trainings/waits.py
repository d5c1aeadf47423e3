"""Waits: what a start waits for, kept beside the training's records by who can ask the launcher and the fleet.

Whoever shows a training and cannot ask them (the server of pages) reads it there. It holds for one incarnation, and
only while that has not begun: of an older one it says nothing. Without a record that is whole, nothing is known.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base import atomic, codec

KEPT = "waits.json"
FORMAT = "slipway.waits/1"


@dataclass(frozen=True)
class KeptWait:
    """What the start after an incarnation, or that of one that has not begun, waits for."""

    incarnation: int
    """The newest incarnation, 0 before the first."""
    life: int
    reason: str
    """Empty once it waits no more."""


def keep(facts: TrainingFacts, reason: str) -> None:
    """Keep the reason where it is a new one. Raises OSError."""
    wait = KeptWait(facts.incarnation, facts.life, reason)
    held = _read(facts.folder)
    if wait != held and (reason or held is not None):
        atomic.replace(facts.folder / KEPT, codec.encode(wait, FORMAT), lasting=False)


def reason(facts: TrainingFacts) -> str:
    """What the training waits for; empty where nothing is known, and for one that runs or is over."""
    held = _read(facts.folder)
    if held is None or not facts.unfinished or (facts.running and facts.begun):
        return ""
    return held.reason if (held.incarnation, held.life) == (facts.incarnation, facts.life) else ""


def _read(folder: Path) -> KeptWait | None:
    with contextlib.suppress(OSError, ValueError):
        return codec.read_if_there(folder / KEPT, KeptWait, FORMAT)
    return None
