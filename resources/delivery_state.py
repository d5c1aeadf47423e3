"""Delivery state: what a side service has received of each training, and which trainings have more to send.

    <folder>/trainings/<training>.json   what was sent of a training
             open/<training>             marks a training that is not over, or was not sent completely

It is not part of a training's pending work (`slipway.resources.trainings.store`): nothing waits for a side service that
is away.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Generic, TypeVar

from slipway.trainer.base import atomic, codec, listing

Sent = TypeVar("Sent")


class DeliveredRecord(Generic[Sent]):
    """What was sent to one service, on the durable tier."""

    def __init__(self, folder: Path, nothing: Sent, format: str) -> None:
        """`nothing` is the record of a training of which nothing was sent."""
        self._folder = folder
        self._nothing = nothing
        self._format = format

    def to_look_at(self, ids: Iterable[str], running: Iterable[str]) -> list[str]:
        """Of all trainings and those that should run now: those that are new, have more to tell, or go on."""
        known = {name.removesuffix(".json") for name in listing.names_if_there(self._folder / "trainings")}
        opened = set(listing.names_if_there(self._folder / "open"))
        there = set(ids)
        return sorted((there - known) | (opened & there) | set(running))

    def of(self, training: str) -> Sent:
        """Raises UndecodableRecord for a record that is damaged."""
        return codec.read_if_there(self._path(training), type(self._nothing), self._format) or self._nothing

    def note(self, training: str, sent: Sent, is_whole: bool) -> None:
        """Keep what was sent; `is_whole` says that there will be no more, unless the training goes on."""
        opened = self._folder / "open" / training
        if not is_whole and not opened.exists():
            atomic.create_only(opened, b"")
        if sent != self.of(training) or not self._path(training).exists():
            codec.replace(self._path(training), sent, self._format)
        if is_whole:
            opened.unlink(missing_ok=True)

    def _path(self, training: str) -> Path:
        return self._folder / "trainings" / f"{training}.json"
