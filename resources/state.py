"""State: which version of all formats together a durable tier holds, said by one file of it, ``state.json``.

Each format has a version of its own. The state covers what has none, and says in one place whether a program may work
here at all: a tier that a newer version has written is refused before anything of it is read. A tier without the file
is new, or of the oldest release that this one reads.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from slipway.trainer.base import atomic, codec, listing, parsing, regular_file

FILE, FORMAT = "state.json", "slipway.state/1"
RELEASES = {2: "0.2"}
"""By state, the first release that writes it. Who changes a format on disk adds one, with its migrations. State 1 was
that of 0.1, whose homes are not read."""
STATE = max(RELEASES)


@dataclass(frozen=True)
class StateMark:
    """What ``state.json`` says."""

    state: int
    version: str
    """The release that wrote it."""
    at: float
    """Seconds since the epoch."""


def state_of(durable: Path) -> StateMark | None:
    """The mark of a durable tier; None where there is none.

    Only `state` and `version` are read, so that the marks of all versions to come can be. Raises ValueError for a file
    without them, and OSError.
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
    """The mark of a durable tier. Raises ValueError for one that a newer Slipway has written, as `state_of`."""
    mark = state_of(durable)
    if mark is not None and mark.state > STATE:
        raise ValueError(
            f"{durable}: found state {mark.state}, which Slipway {mark.version} wrote, expected {STATE} or older: "
            f"this is Slipway {RELEASES[STATE]}; install {mark.version}, or take its upgrade back with it: "
            "slipway upgrade --undo"
        )
    return mark


def write(durable: Path, state: int) -> None:
    """Mark a durable tier with a state. Raises OSError."""
    atomic.replace(durable / FILE, codec.encode(StateMark(state, RELEASES[state], time.time()), FORMAT))


def is_new(durable: Path) -> bool:
    """Whether a durable tier holds nothing yet. Raises OSError when it cannot be listed."""
    return not listing.names_if_there(durable)
