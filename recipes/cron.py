"""Cron strings of five fields, checked for form and range when recipes are loaded, before a schedule uses them."""

import re

FIELDS = {"minute": (0, 59), "hour": (0, 23), "day of the month": (1, 31), "month": (1, 12), "day of the week": (0, 7)}
_ITEM = re.compile(r"(?:\*|(?P<low>\d+)(?:-(?P<high>\d+))?)(?:/(?P<step>\d+))?")


def check(text: str) -> str:
    """`text` unchanged. Raises ValueError with what is expected; names of days and months are not accepted."""
    fields = text.split()
    if len(fields) != len(FIELDS):
        raise ValueError(f"expected a cron string of five fields: {', '.join(FIELDS)}")
    for field, (name, (low, high)) in zip(fields, FIELDS.items(), strict=True):
        if not all(_fits(item, low, high) for item in field.split(",")):
            raise ValueError(f"expected a cron string whose {name} is * or {low} to {high} (with , - or /)")
    return text


def _fits(item: str, low: int, high: int) -> bool:
    match = _ITEM.fullmatch(item)
    if match is None or (match["step"] and int(match["step"]) == 0):
        return False
    first = int(match["low"] or low)
    return low <= first <= int(match["high"] or first) <= high
