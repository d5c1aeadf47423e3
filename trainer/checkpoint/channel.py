"""The trainer's end of its writer process: two buffers in shared memory, requests in, answers out."""

import contextlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainer.checkpoint.snapshot import Buffer

ROOT = Path(__file__).parents[2]
BUFFERS = 2


class Channel:
    """A writer process, started anew when it has died, and the buffers that outlive it."""

    def __init__(self) -> None:
        self.buffers = [Buffer() for _ in range(BUFFERS)]
        self._unread = b""
        self._process = self._started()

    def send(self, buffer: int, request: dict[str, Any]) -> None:
        """Ask for the snapshot in a buffer to be written. Raises BrokenPipeError when nobody is there."""
        begin, length = self.buffers[buffer].write_request(request)
        assert self._process.stdin is not None
        os.write(
            self._process.stdin.fileno(),
            json.dumps({"buffer": buffer, "begin": begin, "length": length}).encode() + b"\n",
        )

    def answers(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """What the writer has answered; waits for a first answer, or for the writer's death, for up to `seconds`."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while select.select([descriptor], [], [], seconds)[0]:
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            self._unread, seconds = self._unread + data, 0.0
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    @property
    def death(self) -> str:
        """How the writer died; empty while it lives."""
        code = self._process.poll()
        return "" if code is None else f"the writer process has died ({_said(code)})"

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self) -> None:
        """Have a writer again."""
        self._end()
        self._unread = b""
        self._process = self._started()

    def close(self, seconds: float = 0.0) -> None:
        """End the writer, after it had `seconds` to finish by itself."""
        assert self._process.stdin is not None
        if seconds:
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self._end()
        for buffer in self.buffers:
            buffer.close()

    def _started(self) -> subprocess.Popen[bytes]:
        descriptors = [buffer.fd for buffer in self.buffers]
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", "trainer.checkpoint.writer", str(os.getpid()), *map(str, descriptors)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=descriptors,
            env={**os.environ, "PYTHONPATH": path},
        )

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _said(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
