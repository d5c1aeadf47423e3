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


def explain(module: str, does: str) -> None:
    """With --help as the first argument, say in one line what the module does and who starts it, and exit."""
    if sys.argv[1:2] in (["--help"], ["-h"]):
        say(f"python -m {module} {does}. Slipway starts it; what a person calls is in slipway --help.")
        raise SystemExit(0)


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"{line}\n")
    stream.flush()
