"""State: the version of all formats of a durable tier together, recorded in its file ``state.json``.

Each format also has a version of its own. The state covers records without one, and decides in one place whether a
program may use a tier at all: a tier that a newer version wrote is rejected before anything else is read. A tier
without the file is new, or was written by the oldest release that this one reads.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec, listing, parsing, regular_file

FILE = "state.json"
FORMAT = "slipway.state/1"
RELEASES = {2: "0.2"}
"""The first release that writes each state. A change of a format on disk adds a state and its migrations.
State 1 was that of 0.1, whose homes are not read."""
STATE = max(RELEASES)


@dataclass(frozen=True)
class StateMark:
    """The content of ``state.json``."""

    state: int
    version: str
    """The release that wrote it."""
    at: float
    """Seconds since the epoch."""


def state_of(durable: Path) -> StateMark | None:
    """The mark of a durable tier, or None.

    Only `state` and `version` are required, so that this version can read the marks of all future versions. Raises
    ValueError for a file without them, and OSError.
    """
    path = durable / FILE
    try:
        mark = parsing.value(regular_file.read(path))
        return StateMark(int(mark["state"]), str(mark["version"]), float(mark.get("at", 0.0)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{path}: found no state ({error!r}), expected the fields state and version") from None


def refuse_newer(durable: Path) -> StateMark | None:
    """The mark of a durable tier. Raises ValueError if a newer Slipway wrote it, and as `state_of` does."""
    mark = state_of(durable)
    if mark is not None and mark.state > STATE:
        raise ValueError(
            f"{durable}: found state {mark.state}, which Slipway {mark.version} wrote, expected {STATE} or older: "
            f"this is Slipway {RELEASES[STATE]}; install {mark.version}, or use it to undo the upgrade: "
            "slipway upgrade --undo"
        )
    return mark


def write(durable: Path, state: int) -> None:
    """Mark a durable tier with a state. Raises OSError."""
    atomic.replace(durable / FILE, codec.encode(StateMark(state, RELEASES[state], time.time()), FORMAT))


def is_new(durable: Path) -> bool:
    """Whether a durable tier is empty. Raises OSError if it cannot be listed."""
    return not listing.names_if_there(durable)
