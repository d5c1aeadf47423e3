"""Last words: the end of the output of a process and its descendants, kept in a file after they have failed.

The file is a container's termination log, which Kubernetes shows in the pod's status even when the log itself is gone.
"""

import os
import sys
import threading
from pathlib import Path

FILE_VARIABLE = "SLIPWAY_LAST_WORDS"
"""The environment variable that names the file; without it no last words are kept."""
BYTES = 4096
"""Kubernetes keeps this much of a container's termination log."""


class LastWords:
    """A pipe: its content is copied to the output of this process, and the end of it is remembered."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._end = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def listen(self) -> None:
        """Begin to read, once the other process has `writing`."""
        os.close(self.writing)
        self._listener.start()

    def end(self) -> bytes:
        """What has been remembered so far."""
        return self._end

    def write(self, file: Path) -> None:
        """Write the end to the file, after every process that has `writing` is dead. Raises OSError."""
        self._listener.join()
        file.write_text(self._end.decode(errors="ignore"))

    def _listen(self) -> None:
        while output := os.read(self._reading, 1 << 16):
            sys.stdout.buffer.write(output)
            sys.stdout.buffer.flush()
            self._end = (self._end + output)[-BYTES:]
