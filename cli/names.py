"""Names on the command line: in full, or any beginning that only one of them has."""

from collections.abc import Collection

SHOWN = 12
"""So many names are listed in a message."""


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
