"""Accesses: which files a part of a test opens, and which folders it lists."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

EVENTS = ("open", "os.listdir", "os.scandir")
"""What Python reports to an audit hook when it opens a file or lists a folder."""


class Accesses:
    """How often each path was opened or listed while this is counting."""

    def __init__(self) -> None:
        self.counting = False
        self.paths: Counter[str] = Counter()
        sys.addaudithook(self._note)  # a hook stays for the life of the process

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.counting and event in EVENTS and isinstance(arguments[0], str | Path):
            self.paths[str(arguments[0])] += 1

    @contextmanager
    def below(self, folder: Path) -> Iterator[Counter[str]]:
        """Count what is opened and listed below `folder`, by its path relative to it."""
        counts: Counter[str] = Counter()
        self.paths.clear()
        self.counting = True
        try:
            yield counts
        finally:
            self.counting = False
            counts.update(
                {path[len(str(folder)) :]: n for path, n in self.paths.items() if path.startswith(str(folder))}
            )


accesses = Accesses()
