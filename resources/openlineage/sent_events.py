"""Sent events: which events were sent already, and which trainings and snapshots have more to send.

<durable>/openlineage/snapshots/<sha256>   a snapshot whose event was sent; for trainings, see
                                           `slipway.resources.delivery_state`
"""

from dataclasses import dataclass
from pathlib import Path

from slipway.resources.delivery_state import DeliveredRecord
from slipway.trainer.base import atomic, listing, paths

FORMAT = "slipway.openlineage/1"


@dataclass(frozen=True)
class SentEvents:
    """The names of the sent events of one training."""

    names: tuple[str, ...] = ()


class SentRecord(DeliveredRecord[SentEvents]):
    """The record of sent events on the durable tier."""

    def __init__(self, durable: Path) -> None:
        super().__init__(durable / "openlineage", SentEvents(), FORMAT)
        self._durable = durable

    def new_snapshots(self) -> list[str]:
        """The SHA-256 of each snapshot whose event was not sent. Raises OSError."""
        there = {name.removesuffix(".json") for name in listing.names_if_there(self._durable / paths.SNAPSHOTS)}
        return sorted(there - set(listing.names_if_there(self._folder / "snapshots")))

    def note_snapshot(self, sha256: str) -> None:
        atomic.create_only(self._folder / "snapshots" / sha256, b"")
