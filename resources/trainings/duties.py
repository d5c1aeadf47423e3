"""The duties of the control plane: what it owes each training until it is done.

A duty is open for a life of the training: from one record of what is desired to the next. Each opening is a file
``<trainings>/.open/<duty>/<training id>@<life>.<opening>``, and closing removes the openings that were looked up, up to
the life that was judged. Whatever was opened for a later life, or meanwhile, stays open. A sensor visits only what is
open for it.
"""

import enum
import re
import uuid
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, listing
from slipway.trainer.record import files

ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""What is an id of a training, a trial or a sweep."""


class Duty(enum.StrEnum):
    """One duty; its value is the name of its folder on disk."""

    RUN = "run"
    """Bring the training to its end: the job watch."""
    CHECKPOINTS = "checkpoints"
    """Show its checkpoints and have them evaluated: checkpoint arrivals."""
    PROMOTION = "promotion"
    """Judge its result once it has succeeded: promotions."""
    INCIDENTS = "incidents"
    """Show what interrupted its steps, what that cost, and where it went on: incidents."""
    NOTICES = "notices"
    """Tell people what happens to it: notifications."""
    TRACKING = "tracking"
    """Deliver its metrics to MLflow: metrics shipping."""


@dataclass(frozen=True)
class OpenDuty:
    """A duty that is open towards one training, as it was when it was looked up."""

    training: str
    files: tuple[Path, ...]

    @property
    def life(self) -> int:
        """The newest life for which it is open."""
        return max((_parts(path.name)[1] for path in self.files), default=0)

    def close(self, life: int) -> None:
        """The duty is done for this life. What was opened for a later one, or after the look-up, stays open."""
        for path in self.files:
            if _parts(path.name)[1] <= life:
                path.unlink(missing_ok=True)


def open_for(folder: Path, training: str, life: int) -> None:
    """Open the duty of this folder towards a training. Raises OSError."""
    atomic.create_only(folder / f"{training}@{life:06d}.{uuid.uuid4().hex[:12]}", b"")


def openings(folder: Path) -> list[OpenDuty]:
    """The duties that are open, by training. Raises OSError where that cannot be read."""
    found: dict[str, list[Path]] = {}
    names = files.entries(folder) or ()
    for name in listing.fitting(folder, names, lambda name: ID.fullmatch(_parts(name)[0]) is not None):
        found.setdefault(_parts(name)[0], []).append(folder / name)
    return [OpenDuty(training, tuple(paths)) for training, paths in sorted(found.items())]


def _parts(name: str) -> tuple[str, int]:
    """The training and the life; a file of the format before has no life, and counts as opened before the first."""
    training, mark, rest = name.rpartition("@")
    life = rest.partition(".")[0]
    return (training, int(life)) if mark and life.isdecimal() else (name, 0)
