"""Regular files: whole files are read here, and nothing else is ever opened for reading.

A pipe opens when somebody opens its other end, a device has no end: in the place of a record, either holds up whoever
reads it for ever.
"""

import errno
import os
import stat
from pathlib import Path


class NotRegular(OSError):
    """A pipe, a socket or a device stands where a file is expected."""


def read(path: Path) -> bytes:
    """The bytes of a file. Raises NotRegular and OSError."""
    with open(path, "rb", opener=_without_waiting) as file:
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # Python itself refuses folders
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "found a pipe, a socket or a device, expected a file", path)
    return descriptor
