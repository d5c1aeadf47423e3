"""What verbs print: tables and JSON on standard output, and on standard error how a long one is getting on."""

import contextlib
import dataclasses
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 2.0
"""A verb that takes longer than this says what it is doing."""
LINE_SECONDS = 15.0
"""Between two such lines where standard error is not a terminal."""


def print_json(value: Any) -> None:
    """Print plain values, dataclasses and paths as one JSON value."""
    print(json.dumps(value, indent=2, ensure_ascii=False, default=_plain))


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under a head, in columns as wide as they need; nothing without rows."""
    if not rows:
        return
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """Print a line for each field, the values below one another."""
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"{name.ljust(width)}  {value}")


def when(seconds: float | None) -> str:
    """Seconds since the epoch as local time; "-" for None."""
    return "-" if seconds is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def note(message: str) -> None:
    """Say something that is not the result."""
    print(message, file=sys.stderr, flush=True)


class ProgressLine:
    """Says on standard error what a verb is doing, once that has taken a while."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._began = time.monotonic()
        self._done = threading.Event()
        self._terminal = sys.stderr.isatty()
        self._printed = False
        self._thread = threading.Thread(target=self._report, daemon=True)

    def update(self, message: str) -> None:
        """What it is doing from now on."""
        self._message = message

    def _report(self) -> None:
        pause = PATIENCE_SECONDS
        while not self._done.wait(pause):
            self._printed = True
            line = f"{self._message} ({time.monotonic() - self._began:.0f} s)"
            print(f"\r\x1b[K{line}" if self._terminal else line, end="" if self._terminal else "\n", file=sys.stderr)
            sys.stderr.flush()
            pause = 1.0 if self._terminal else LINE_SECONDS

    def __enter__(self) -> "ProgressLine":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._terminal and self._printed:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress(message: str) -> Iterator[ProgressLine]:
    """Within it, say what is being done once it has taken longer than `PATIENCE_SECONDS`."""
    with ProgressLine(message) as progress_line:
        yield progress_line


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return sorted(value)
    raise TypeError(f"{value!r} is no plain value")
