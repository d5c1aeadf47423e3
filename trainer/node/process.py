"""One node of a job: when this process ends, all processes below it end. A pod or a keeper starts it.

``python -m slipway.trainer.node.process (rank|agent|supervisor) FOLDER COMMAND...`` runs the command in the folder
(empty: this one): a single rank, a torchrun agent with ranks below it, or a supervisor, which forwards signals to its
ranks itself. SIGTERM goes to the ranks; SIGHUP (the keeper died) ends all processes at once. In a pod, the last output
of failed processes is saved (`LastWords`). On request and after a failure, it collects evidence of the processes' work
(`slipway.trainer.diagnosis`).
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Protocol

from slipway.trainer.base import console, processes
from slipway.trainer.diagnosis import stacks
from slipway.trainer.diagnosis.stacks import VARIABLE as STACKS
from slipway.trainer.diagnosis.stacks import make_folder
from slipway.trainer.diagnosis.watch import DiagnosisWatch

POLL_SECONDS = 0.2
LONGEST_SECONDS = 5.0
"""A process that stands still for longer is ended. Tools that look into a process stop it for less than a second."""
FILE_VARIABLE = "SLIPWAY_LAST_WORDS"
"""The environment variable with the path of the file; without it, the last output is not saved."""
BYTES = 4096
"""Kubernetes keeps this much of a container's termination log."""
AGENT = "agent"
SUPERVISOR = "supervisor"
NOT_STARTED = 127
"""The exit code of a command that cannot be started, as shells have it."""


class CommandHandle(Protocol):
    """The command of a node, to the process of the node."""

    pid: int

    def wait(self, timeout: float) -> int: ...


StartCommand = Callable[[list[str], str, Mapping[str, str], int | None], CommandHandle]
"""Starts the command of a node: the command, its folder (empty: this one), its environment, and the descriptor that it
writes to (None: those of this process). It dies with this process."""


def executed(command: list[str], folder: str, environment: Mapping[str, str], output: int | None) -> CommandHandle:
    """The command of a node as a new program. Raises OSError if it cannot start."""
    bind = functools.partial(processes.die_with_parent, parent=os.getpid())
    return subprocess.Popen(
        command,
        cwd=folder or None,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        preexec_fn=bind,
    )


class NodeProcess:
    """The command of this node, and the signals to it."""

    def __init__(
        self,
        command: list[str],
        folder: str,
        kind: str,
        output: int | None = None,
        stacks: Path | None = None,
        start: StartCommand = executed,
    ) -> None:
        """Start the command; it writes to the descriptor `output`, or without one to the output of this process.

        `stacks`: the folder to which its ranks write their stacks on request.
        """
        self._kind = kind
        self._standstill = Standstill()
        self._stopping = False
        self._signalled: set[int] = set()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGHUP, _die)
        environment = {**os.environ, **({STACKS: str(stacks)} if stacks else {})}
        self._process = start(command, folder, environment, output)

    def run(self) -> int:
        """Wait for the command; returns its exit code, 128 + n if signal n ended it.

        A command that was asked to stop has not finished its work, so an exit code of 0 counts as SIGTERM.
        """
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(POLL_SECONDS)
                code = code or (-signal.SIGTERM if self._stopping else 0)
                return code if code >= 0 else 128 - code
            if self._stopping:
                self._signal_ranks()
            if self._kind == SUPERVISOR and self._standstill.is_over_long(self._process.pid):
                console.warn("trainer: its supervisor has stood still for too long: this node ends")
                _end_as_lost()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _signal_ranks(self) -> None:
        """Send SIGTERM once to each rank, also to ranks that start later; to the agent only while it has no ranks.

        An agent with ranks would kill them after a time-out of its own, but the process that cancels the job decides
        how long its ranks may take.
        """
        ranks = processes.children(self._process.pid) if self._kind == AGENT else []
        for pid in set(ranks or [self._process.pid]) - self._signalled:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            self._signalled.add(pid)


def _die(number: int, frame: FrameType | None) -> None:
    processes.kill_descendants()
    os._exit(128 + number)


def _end_as_lost() -> None:
    """End with all processes, like a dead node. The first process of a container cannot kill itself, so it exits."""
    processes.kill_descendants()
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)


class Standstill:
    """The time for which some processes have been stopped, by the reader's own clock.

    A stopped process (SIGSTOP) does not end, so its parent would wait for ever. The other nodes of a job count it as
    lost after `slipway.trainer.elastic.liveness.LOST_SECONDS` and go on without it. It must be killed, so that it can
    be started anew. The state is unambiguous: a process that waits for a disk or for a processor has another state.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = dict[int, float]()

    def is_over_long(self, pid: int) -> bool:
        """Whether a process has been stopped, at every reading, for more than `LONGEST_SECONDS`."""
        if stacks.state(pid) != stacks.STOPPED:
            self._since.pop(pid, None)
            return False
        return self._clock() - self._since.setdefault(pid, self._clock()) > LONGEST_SECONDS


class LastWords:
    """The end of the output of a process and its descendants, kept in a file after they have failed.

    It is a pipe, whose content is copied to the output of this process. The file is a container's termination log,
    which Kubernetes shows in the pod's status even when the log itself is gone.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        self._end = b""
        self._listener = threading.Thread(target=self._listen, daemon=True)

    def listen(self) -> None:
        """Begin to read, once the other process has `writing`."""
        os.close(self.writing)
        self._listener.start()

    def end(self) -> bytes:
        """The output in memory."""
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


def run(
    command: list[str], folder: str, kind: str, termination_log: Path | None, start: StartCommand = executed
) -> int:
    """Run the command until no process of it is left; return its exit code. Raises OSError if it cannot start."""
    heard = LastWords() if termination_log else None
    stacks = make_folder()
    try:
        node = NodeProcess(command, folder, kind, heard.writing if heard else None, stacks, start)
        if heard:
            heard.listen()
        watch = DiagnosisWatch(command[-1], stacks, heard.end if heard else None)
        code = node.run()
        processes.kill_descendants()
        watch.after_end(code)
    finally:
        if stacks:
            shutil.rmtree(stacks, ignore_errors=True)
    if heard and termination_log and code:
        heard.write(termination_log)
    return code


def main(arguments: list[str], start: StartCommand = executed) -> int:
    kind, folder, *command = arguments
    processes.adopt_orphans()
    file = os.environ.get(FILE_VARIABLE)
    try:
        return run(command, folder, kind, Path(file) if file else None, start)
    except OSError as error:
        console.warn(f"trainer: {' '.join(command)}: cannot be started: {error}")
        return NOT_STARTED


if __name__ == "__main__":
    console.explain("slipway.trainer.node.process", "holds all processes of a node together")
    sys.exit(main(sys.argv[1:]))
