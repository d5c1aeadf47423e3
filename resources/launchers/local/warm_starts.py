"""Warm starts: fork short jobs that follow one another from a process that has imported everything they need.

A new process takes seconds to import torch, while a short trial takes only seconds in all. The fork server
(`slipway.resources.launchers.local.fork_server`) belongs to the process that submits the jobs, and ends with it; its
jobs go on. Each job has its own keeper, node process, supervisor and rank, like any other job. If the server cannot
start a job, the launcher starts it in the usual way.
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
"""Space for the command lines and the environments of forked processes (`slipway.trainer.base.forked`)."""
ANSWER_SECONDS = 60.0
"""How long the server may take for a job; for the first one, it imports everything, maybe on a busy machine."""
ENDING_SECONDS = 5.0
THREADS = "OMP_NUM_THREADS"
"""Torch reads this variable when it is imported, so all jobs of one server have the same value."""


class WarmStarts:
    """The fork server of this process, which is started on first use. Other processes have their own."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._threads = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return (WarmStarts, ())

    def start(self, folder: JobFolder, order: LocalOrder, code: Path) -> bool:
        """Start a warm job with a single rank. Returns whether it has a keeper now."""
        if not (order.job.warm_start and order.job.is_lone and is_supervised(order.job)):
            return False
        threads = rank_environment(order.job, order.node_cores, os.environ)[THREADS]
        for _ in range(2):  # an idle server may have ended
            if self._server is None:
                self._begin(_environment(code, threads))
                self._threads = threads
            if threads != self._threads:
                return False
            answer = self._request(str(folder.path))
            if answer is not None:
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
        """Whether the server has started the job in this folder; None if it did not answer."""
        assert self._server is not None and self._server.stdin is not None and self._server.stdout is not None
        received = b""
        deadline = time.monotonic() + ANSWER_SECONDS
        try:
            self._server.stdin.write(f"{path}\n".encode())
        except BrokenPipeError:
            return None
        while True:
            ready, _, _ = select.select([self._server.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._server.stdout.fileno(), 65_536) if ready else b""
            if not piece:
                return None
            received += piece
            for line in received.splitlines(keepends=True):  # the answer to an earlier request may still be unread
                if line.endswith(b"\n") and line[1:-1] == path.encode():
                    return line[:1] == b"+"

    def end(self) -> None:
        """End the server, if there is one; its jobs go on."""
        if self._server is not None:
            _let_go(self._server)
            self._server = None


def _environment(code: Path, threads: str) -> dict[str, str]:
    """The environment of the server: that of a keeper, and the variables that Python and torch read when they start."""
    own = keeper_environment(code, os.environ)
    return {**own, THREADS: threads, "PYTHONUNBUFFERED": "1", ROOM_VARIABLE: " " * ROOM_BYTES}


def _let_go(server: "subprocess.Popen[bytes]") -> None:
    """End a server; its jobs go on."""
    for pipe in (server.stdin, server.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    try:
        server.wait(ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
