"""The page in a training's folder: `report.html`, written in one step while it runs, and once it has ended."""

import time
from collections.abc import Callable

from slipway.resources.pages import training
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import atomic
from slipway.trainer.record import files

PAGE = "report.html"
SHARE = 0.05
"""At most this share of the time is spent on making the page while the training runs."""
LEAST_SECONDS = 30.0
"""And it is made no more often than this."""


class PageKeeper:
    """Keeps one training's page up to date, at a bounded share of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0

    def update(self, reader: TrainingReader, store: TrainingStore, live: bool) -> bool:
        """Write the page where its time has come; at once for a training that has ended. Raises OSError."""
        begun = self._clock()
        if live and begun < self._next:
            return False
        write(reader, store)
        ended = self._clock()
        self._next = ended + max(LEAST_SECONDS, (ended - begun) / SHARE)
        return True


def write(reader: TrainingReader, store: TrainingStore) -> None:
    """Write the page of a training as it is now. Raises OSError, and ValueError for one that was never proposed."""
    view = reader.view(store)
    atomic.replace(store.folder / PAGE, training.html(view).encode(), lasting=not view.status.is_live)


def behind(root: Trainings) -> list[str]:
    """The trainings whose page is older than their newest end, or lacks although they have ended. Raises OSError."""
    return [id for id in root.ids() if is_behind(root.store(id))]


def is_behind(store: TrainingStore) -> bool:
    """Whether the page of a training is older than its newest end, or lacks although it has ended. Raises OSError."""
    try:
        ended = (store.folder / files.EXITS).stat().st_mtime
    except FileNotFoundError:
        return False
    try:
        return (store.folder / PAGE).stat().st_mtime < ended
    except FileNotFoundError:
        return True
