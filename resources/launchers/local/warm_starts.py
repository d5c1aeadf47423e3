"""Warm starts: short jobs that follow one another are forked from a process that has imported all that they need.

A new process takes seconds to import torch, and a short trial takes seconds altogether. The fork server
(`slipway.resources.launchers.local.fork_server`) belongs to the process that submits the jobs and ends with it; the
jobs that it has started go on. Each of them has a keeper, a node's process, a supervisor and a rank of its own, as any
other job. Where the server does not start a job, for whatever reason, the job starts as any other.
"""

import contextlib
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipway.resources.launchers.environment import rank_environment
from slipway.resources.launchers.local.folder import JobFolder, LocalOrder
from slipway.resources.launchers.local.local_process import keeper_environment
from slipway.resources.launchers.torchrun import is_supervised

SERVER = "slipway.resources.launchers.local.fork_server"
ROOM_VARIABLE = "SLIPWAY_ROOM"
ROOM_BYTES = 16_384
"""Room for the command line, and for the environment, of those that the server forks
(`slipway.trainer.base.forked`)."""
ANSWER_SECONDS = 60.0
"""What the server may take for a job: for the first one it imports everything, on a busy machine."""
ENDING_SECONDS = 5.0
THREADS = "OMP_NUM_THREADS"
"""Read when torch is imported, so that all jobs of one server have the same."""


class WarmStarts:
    """The fork server of this process, which is started when it is first needed. Another process has its own."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._threads = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (WarmStarts, ())

    def start(self, folder: JobFolder, order: LocalOrder, code: Path) -> bool:
        """Start a job that asks for it and has one rank; whether it has a keeper now."""
        if not (order.job.warm and order.job.is_lone and is_supervised(order.job)):
            return False
        threads = rank_environment(order.job, order.node_cores, os.environ)[THREADS]
        for _ in range(2):  # a server that nobody asked for a while has ended
            if self._server is None:
                self._begin(_environment(code, threads))
                self._threads = threads
            if threads != self._threads:
                return False
            if (answer := self._request(str(folder.path))) is not None:
                return answer
            self.end()
        return False

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            # -P: a file in the folder of this process must not replace a module that it imports.
            [sys.executable, "-P", "-m", SERVER, " " * ROOM_BYTES],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        weakref.finalize(self, _let_go, self._server)

    def _request(self, path: str) -> bool | None:
        """Whether the server has started the job in this folder; None where it did not answer."""
        assert self._server is not None and self._server.stdin is not None and self._server.stdout is not None
        received = b""
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            self._server.stdin.write(f"{path}\n".encode())
        except BrokenPipeError:
            return None
        while True:
            ready, _, _ = select.select([self._server.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or not (piece := os.read(self._server.stdout.fileno(), 65_536)):
                return None
            received += piece
            for line in received.splitlines(keepends=True):  # an earlier question may not have waited for its answer
                if line.endswith(b"\n") and line[1:-1] == path.encode():
                    return line[:1] == b"+"

    def end(self) -> None:
        """Let the server end, if there is one; what it has forked goes on."""
        if self._server is not None:
            _let_go(self._server)
            self._server = None


def _environment(code: Path, threads: str) -> dict[str, str]:
    """The environment of the server: that of a keeper, and what its ranks' Python reads when it starts."""
    own = keeper_environment(code, os.environ)
    return {**own, THREADS: threads, "PYTHONUNBUFFERED": "1", ROOM_VARIABLE: " " * ROOM_BYTES}


def _let_go(server: "subprocess.Popen[bytes]") -> None:
    """Let a server end; what it has forked goes on."""
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        server.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
