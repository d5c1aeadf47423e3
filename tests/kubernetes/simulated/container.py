"""A container: the command is the first process of a stand-in for a PID namespace, which dies with it.

``python -m tests.kubernetes.simulated.container FOLDER COMMAND...`` passes SIGTERM to the command alone, ends
everything below it when it ends, and at once on SIGUSR1 (the SIGKILL of a container runtime).
"""

import os
import signal
import subprocess
import sys
from types import FrameType

from slipway.trainer.base import processes

KILL = signal.SIGUSR1
NOT_STARTED = 128
"""The exit code of a container whose command cannot be started (reason StartError)."""


class Container:
    def __init__(self, folder: str, command: list[str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_notified = False
        signal.signal(signal.SIGTERM, self._tell)
        self._process = subprocess.Popen(command, cwd=folder or None, stdin=subprocess.DEVNULL, start_new_session=True)
        if self._is_notified:
            self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        assert self._process
        code = self._process.wait()
        processes.kill_descendants()
        return code if code >= 0 else 128 - code

    def _tell(self, *_: object) -> None:
        self._is_notified = True
        if self._process:
            self._process.send_signal(signal.SIGTERM)


def main() -> int:
    signal.signal(KILL, _kill)
    processes.die_with_parent(by=KILL)
    processes.adopt_orphans()
    folder, *command = sys.argv[1:]
    try:
        return Container(folder, command).wait()
    except OSError as error:
        print(f"exec: {command[0]!r}: {error}", flush=True)
        return NOT_STARTED


def _kill(number: int, frame: FrameType | None) -> None:
    processes.kill_descendants()
    os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
