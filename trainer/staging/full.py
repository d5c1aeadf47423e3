"""A full disk: a write that fails for lack of room is done again, in the room that removals make.

Stagings that find the disk full do so at the same moment, and each removal serves all of them. So they go on one at a
time: whoever finds nothing left to remove knows that no other one is about to make room, and that there is none.
"""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from slipway.trainer.base import lock, paths
from slipway.trainer.staging import retention

FULL = (errno.ENOSPC, errno.EDQUOT)
"""The errors of a full disk."""
_T = TypeVar("_T")


def in_room(nvme: Path, wanted: int, write: Callable[[], _T]) -> _T:
    """The result of `write`, which puts `wanted` bytes on the NVMe; on a full disk, what no lease holds is removed.

    `write` leaves the disk as it was when it fails, and is called again. Raises its OSError when all is held, and that
    of a failed removal.
    """
    try:
        return write()
    except OSError as error:
        if error.errno not in FULL:
            raise
    with lock.exclusive(nvme / paths.PARTIAL):
        if shutil.disk_usage(nvme).free < wanted:
            retention.make_room(nvme, wanted)
        while True:
            try:
                return write()
            except OSError as error:
                if error.errno not in FULL or not retention.make_room(nvme, wanted):
                    raise
