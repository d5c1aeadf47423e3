"""Changes of fields in words, the same on the command line, on pages and in Dagster: "run.steps: 400 to 800"."""

from collections.abc import Iterable, Mapping


def change(old: object, new: object) -> str:
    """The value of a field before and after, as Python writes both."""
    return f"{old!r} to {new!r}"


def changes(pairs: Mapping[str, Iterable[object]]) -> str:
    """All changes in one line; `pairs` has for each field its value before and after."""
    return ", ".join(f"{name}: {change(*pair)}" for name, pair in pairs.items())
