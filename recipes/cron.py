"""Cron strings of five fields: loading a recipe checks their form, their ranges, and that their day ever comes.

Dagster would notice later, with more damage: a string that it refuses stops the loading of all recipes, and a day that
never comes makes each tick of its schedule fail.
"""

import re

FIELDS = {"minute": (0, 59), "hour": (0, 23), "day of the month": (1, 31), "month": (1, 12), "day of the week": (0, 7)}
LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
"""Days of each month, from January on, in a leap year."""
_ITEM = re.compile(r"(?:\*|(?P<low>[0-9]+)(?:-(?P<high>[0-9]+))?)(?:/(?P<step>[0-9]+))?")


def check(text: str) -> str:
    """Returns `text` unchanged. Raises ValueError with what is expected; names of days and months are not accepted."""
    fields = text.split()
    if len(fields) != len(FIELDS):
        raise ValueError(f"expected a cron string of five fields: {', '.join(FIELDS)}")
    values = {}
    for field, (name, (low, high)) in zip(fields, FIELDS.items(), strict=True):
        items = [_values(item, low, high) for item in field.split(",")]
        if not all(items):
            raise ValueError(f"expected a cron string whose {name} is * or {low} to {high} (with , - or /)")
        values[name] = set().union(*items)
    # This holds even with a day of the week, on which the schedule would be due: Dagster searches for days of both
    # kinds, and fails.
    if not _comes(values["day of the month"], values["month"]):
        raise ValueError("expected a cron string whose day of the month comes in one of its months")
    return text


def _values(item: str, low: int, high: int) -> set[int]:
    """The values that a part of a field stands for; empty if the part is invalid."""
    match = _ITEM.fullmatch(item)
    step = int((match and match["step"]) or 1)
    if match is None or not 0 < step <= high:
        return set()
    first = int(match["low"] or low)
    alone = match["low"] and not match["high"] and not match["step"]
    last = first if alone else int(match["high"] or high)
    if low <= first <= last <= high:
        return set(range(first, last + 1, step))
    return set()


def _comes(days: set[int], months: set[int]) -> bool:
    """Whether one of the days is in one of the months."""
    return any(min(days) <= LONGEST_MONTHS[month - 1] for month in months)
