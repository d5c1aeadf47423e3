"""Lines on standard output and standard error, each in one write.

All ranks of a node write into one pipe. An unbuffered `print` writes the text and the end of the line apart, and the
line of another rank may come between them.
"""

import sys
from typing import TextIO


def say(line: str) -> None:
    """Write a line on standard output."""
    _write(sys.stdout, line)


def warn(line: str) -> None:
    """Write a line on standard error."""
    _write(sys.stderr, line)


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()
