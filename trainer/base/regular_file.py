"""Regular files: reads whole regular files, and refuses to open anything else.

A pipe opens only when a process opens its other end, and a device has no end: in place of a record, either would block
a reader for ever.
"""

import errno
import os
import stat
from pathlib import Path


class NotRegular(OSError):
    """A pipe, a socket or a device stands where a file is expected."""


def read(path: Path) -> bytes:
    """The bytes of a file. Raises NotRegular and OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # which waits for no other end
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise NotRegular(errno.EINVAL, "found a pipe, a socket or a device, expected a file", str(path))
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)
