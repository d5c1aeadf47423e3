"""Names on the command line, in full or any beginning that only one of them has, and ages: 90s, 10m, 12h, 7d."""

import re
from collections.abc import Collection

from slipway.trainer.base.units import DAY, HOUR, MINUTE

MAX_LISTED = 12
"""So many names are listed in a message."""
_UNITS = {"s": 1.0, "m": MINUTE, "h": HOUR, "d": DAY}
MAX_SECONDS = 36_500 * DAY
"""A hundred years: a date before that is no date of Slipway's."""
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def resolved(prefix: str, names: Collection[str], what: str) -> str:
    """The one of `names` that is `prefix` or begins with it; `what` they are, such as "training".

    Raises ValueError that lists the names to choose from when none begins so, or several do.
    """
    if prefix in names:
        return prefix
    if not prefix and names:
        raise ValueError(f"{what}: found an empty name, expected one of {listed(sorted(names))}")
    matches = sorted(name for name in names if name.startswith(prefix))
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise ValueError(f"{what} {prefix}: found {len(matches)} that begin so, expected one of {listed(matches)}")
    known = f"expected one of {listed(sorted(names))}" if names else "and there is none"
    raise ValueError(f"{what} {prefix}: found none that begins so, {known}")


def with_step(text: str) -> tuple[str, int | None]:
    """(training, step) of TRAINING@STEP; None for TRAINING alone. Raises ValueError for a step that is no number."""
    training, at, step = text.partition("@")
    if at and not step.isdecimal():
        raise ValueError(f"{text}: found the step {step!r}, expected TRAINING@STEP with a whole number")
    return training, int(step) if at else None


def listed(names: list[str]) -> str:
    """The first of these names, and how many more there are."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


def seconds(text: str, option: str) -> float:
    """An age in seconds. Raises ValueError, which names the option."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{option}: found {text!r}, expected a number and its unit, such as 90s, 10m, 12h or 7d")
    age = float(match[1]) * _UNITS[match[2]]
    if age > MAX_SECONDS:
        raise ValueError(f"{option}: found {text!r}, expected {MAX_SECONDS / DAY:.0f}d at most")
    return age
