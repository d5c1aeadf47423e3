"""Ages: how long ago something began, as a person writes it: 90s, 10m, 12h, 7d."""

import re

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")


def seconds(text: str, option: str) -> float:
    """An age in seconds. Raises ValueError, which names the option."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{option}: found {text!r}, expected a number and its unit, such as 90s, 10m, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]
