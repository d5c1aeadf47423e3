"""The channel between a trainer and its writer process: buffers in shared memory, requests, and answers."""

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from slipway.trainer.base import parsing
from slipway.trainer.base.paths import CODE
from slipway.trainer.checkpoint.memory.slots import SAVED_FROM
from slipway.trainer.checkpoint.saving.buffer import Buffer


class Channel:
    """The trainer's end: the writer process, which can be restarted, and the buffers, which outlive it.

    The writer is started when it is first needed, so that it does not delay the first step of a rank that resumes.
    """

    def __init__(self, descriptors: Sequence[int] = ()) -> None:
        """`descriptors`: memfds of buffers that outlive this process too."""
        self.buffers = [Buffer(descriptor) for descriptor in descriptors] or [Buffer() for _ in range(SAVED_FROM)]
        self._unread = b""
        self.bytes_written = 0
        """Over all saves, by the last messages of the writers."""
        self._before = 0
        """Bytes that earlier writers had written."""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the writer, unless it was started."""
        self._process = self._process or self._start()

    def send(self, buffer: int, request: dict[str, Any]) -> None:
        """Ask the writer to write the checkpoint in a buffer. Raises BrokenPipeError if the writer is dead."""
        self.start()
        begin, length = self.buffers[buffer].write_request(request)
        assert self._process is not None and self._process.stdin is not None
        os.write(
            self._process.stdin.fileno(),
            json.dumps({"buffer": buffer, "begin": begin, "length": length}).encode() + b"\n",
        )

    def answers(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """The new answers of the writer; waits for the first one, or for the writer's death, for up to `seconds`."""
        assert self._process is not None and self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while select.select([descriptor], [], [], seconds)[0]:
            data = os.read(descriptor, 1 << 16)
            if not data:
                break
            self._unread = self._unread + data
            seconds = 0.0
        *lines, self._unread = self._unread.split(b"\n")
        messages = [parsing.value(line) for line in lines]
        for line in messages:
            self.bytes_written = self._before + line.get("moved", self.bytes_written - self._before)
        return [line for line in messages if "step" in line]

    @property
    def death(self) -> str:
        """How the writer died; empty while it is alive, and before it is started."""
        code = self._process.poll() if self._process else None
        return "" if code is None else f"the writer process has died ({_exit_text(code)})"

    @property
    def pid(self) -> int:
        self.start()
        assert self._process is not None
        return self._process.pid

    def restart(self) -> None:
        """Start a new writer in place of a dead one."""
        self._end()
        self._unread = b""
        self._before = self.bytes_written
        self._process = self._start()

    def close(self, seconds: float = 0.0) -> None:
        """End the writer; it has `seconds` to finish its work first."""
        if seconds and self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        self._end()
        for buffer in self.buffers:
            buffer.close()

    def _start(self) -> subprocess.Popen[bytes]:
        descriptors = [buffer.fd for buffer in self.buffers]
        path = os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "slipway.trainer.checkpoint.saving.writer",
                str(os.getpid()),
                *map(str, descriptors),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=descriptors,
            env={**os.environ, "PYTHONPATH": path},
        )

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _exit_text(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
