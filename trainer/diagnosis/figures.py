"""Last figures: the last heartbeat of each rank of the training, and the last events of the ledger."""

from pathlib import Path
from typing import Any

from slipway.trainer.base import atomic, codec, journal
from slipway.trainer.record import files, heartbeat
from slipway.trainer.record.claims import Token

TAIL_BYTES = 64 << 10
"""Of each segment of the ledger."""
EVENTS = 50


def last(store: Path, token: Token) -> bytes:
    """The last heartbeats and events under a token, as JSON. Raises OSError."""
    beats = [codec.plain(beat) for beat in heartbeat.read(store, token)]
    return atomic.readable_json({"token": str(token), "heartbeats": beats, "events": _events(store, token)})


def _events(store: Path, token: Token) -> dict[str, list[dict[str, Any]]]:
    """The last events of each writer."""
    events = {}
    for name in files.entries(store / files.LEDGER) or ():
        if name.startswith(f"{token}.") and name.endswith(".jsonl"):
            events[name.removeprefix(f"{token}.").removesuffix(".jsonl")] = _end(store / files.LEDGER / name)
    return events


def _end(segment: Path) -> list[dict[str, Any]]:
    start = max(0, segment.stat().st_size - TAIL_BYTES)
    return journal.read(segment, start).events[-EVENTS:]
