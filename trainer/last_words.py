"""The end of what a process and all below it say, kept where people look first when it is dead.

The file is a container's termination log, which Kubernetes shows in the pod's status when the log itself is gone.
"""

import os
import sys
import threading
from pathlib import Path

FILE_VARIABLE = "SLIPWAY_LAST_WORDS"
"""In the environment: the file; without it nobody listens."""
BYTES = 4096
"""What Kubernetes keeps of a container's termination log."""


class LastWords:
    """A pipe: what is written to it is passed on to our own output, and its end remembered."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._end = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def listen(self) -> None:
        """Begin, when the process that is listened to has `writing`."""
        os.close(self.writing)
        self._listener.start()

    def write(self, file: Path) -> None:
        """Write the end to the file, when all that could say more are dead. Raises OSError."""
        self._listener.join()
        file.write_text(self._end.decode(errors="ignore"))

    def _listen(self) -> None:
        while said := os.read(self._reading, 1 << 16):
            sys.stdout.buffer.write(said)
            sys.stdout.buffer.flush()
            self._end = (self._end + said)[-BYTES:]
