"""Names on the command line, in full or any beginning that only one of them has, and ages: 90s, 10m, 12h, 7d."""

import re
from collections.abc import Collection

from slipway.trainer.base.units import DAY, HOUR, MINUTE

SHOWN = 12
"""So many names are listed in a message."""
_UNITS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY}
LONGEST = 36_500 * DAY
"""A hundred years: a date before that is no date of Slipway's."""
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def resolved(given: str, names: Collection[str], what: str) -> str:
    """The one of `names` that is `given` or begins with it; `what` they are, such as "training".

    Raises ValueError that lists the names to choose from when none begins so, or several do.
    """
    if given in names:
        return given
    if not given and names:
        raise ValueError(f"{what}: found an empty name, expected one of {listed(sorted(names))}")
    meant = sorted(name for name in names if name.startswith(given))
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ValueError(f"{what} {given}: found {len(meant)} that begin so, expected one of {listed(meant)}")
    known = f"expected one of {listed(sorted(names))}" if names else "and there is none"
    raise ValueError(f"{what} {given}: found none that begins so, {known}")


def with_step(given: str) -> tuple[str, int | None]:
    """(training, step) of TRAINING@STEP; None for TRAINING alone. Raises ValueError for a step that is no number."""
    training, at, step = given.partition("@")
    if at and not step.isdecimal():
        raise ValueError(f"{given}: found the step {step!r}, expected TRAINING@STEP with a whole number")
    return training, int(step) if at else None


def listed(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def seconds(text: str, option: str) -> float:
    """An age in seconds. Raises ValueError, which names the option."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{option}: found {text!r}, expected a number and its unit, such as 90s, 10m, 12h or 7d")
    age = float(found[1]) * _UNITS[found[2]]
    if age > LONGEST:
        raise ValueError(f"{option}: found {text!r}, expected {LONGEST / DAY:.0f}d at most")
    return age
