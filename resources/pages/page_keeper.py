"""The page in a training's folder, `report.html`: written atomically while the training runs and once it has ended."""

import time
from collections.abc import Callable

from slipway.resources.pages import training
from slipway.resources.pages.reading import TrainingReader
from slipway.resources.trainings.store import Trainings, TrainingStore
from slipway.trainer.base import atomic
from slipway.trainer.record import files

PAGE = "report.html"
SHARE = 0.05
"""The maximum share of time that is spent on writing the page while the training runs."""
LEAST_SECONDS = 30.0
"""The minimum time between two writes of the page."""


class PageKeeper:
    """Keeps one training's page up to date, in a bounded share of time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._next = 0.0

    def update(self, reader: TrainingReader, store: TrainingStore, live: bool) -> bool:
        """Write the page if it is due, or if the training has ended. Returns whether it did. Raises OSError."""
        begun = self._clock()
        if live and begun < self._next:
            return False
        write(reader, store)
        ended = self._clock()
        self._next = ended + max(LEAST_SECONDS, (ended - begun) / SHARE)
        return True


def write(reader: TrainingReader, store: TrainingStore) -> None:
    """Write the page of a training. Raises OSError, and ValueError if the training was never proposed."""
    view = reader.view(store)
    atomic.replace(store.folder / PAGE, training.html(view).encode(), lasting=not view.status.is_live)


def behind(root: Trainings) -> list[str]:
    """The trainings whose page is missing or older than their newest end. Raises OSError."""
    return [id for id in root.ids() if is_behind(root.store(id))]


def is_behind(store: TrainingStore) -> bool:
    """Whether the page of an ended training is missing or older than its newest end. Raises OSError."""
    try:
        ended = (store.folder / files.EXITS).stat().st_mtime
    except FileNotFoundError:
        return False
    try:
        return (store.folder / PAGE).stat().st_mtime < ended
    except FileNotFoundError:
        return True
