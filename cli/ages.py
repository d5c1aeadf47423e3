"""Ages: how long ago something began, as a person writes it: 90s, 10m, 12h, 7d."""

import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
LONGEST = 36_500 * _UNITS["d"]
"""A hundred years: a date before that is no date of Slipway's."""
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds(text: str, option: str) -> float:
    """An age in seconds. Raises ValueError, which names the option."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{option}: found {text!r}, expected a number and its unit, such as 90s, 10m, 12h or 7d")
    age = float(found[1]) * _UNITS[found[2]]
    if age > LONGEST:
        raise ValueError(f"{option}: found {text!r}, expected {LONGEST / _UNITS['d']:.0f}d at most")
    return age
