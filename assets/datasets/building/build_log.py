"""The log of a build: a function that takes one line of text about how far the build is."""

from collections.abc import Callable

BuildLog = Callable[[str], None]


def quiet(_: str) -> None:
    """A log that keeps nothing."""
