"""One node of a job: when this process ends, all processes below it end. A pod or a keeper starts it.

``python -m slipway.trainer.node.process (rank|agent|supervisor) FOLDER COMMAND...`` runs the command in the folder
(empty: this one): a lone rank, a torchrun agent with ranks below it, or a supervisor, which passes signals on to its
ranks itself. SIGTERM goes to the ranks; SIGHUP (the keeper died) ends everything at once. In a pod, the last output of
failed processes is kept (`LastWords`). While they run and after a failure, evidence is kept of
what they were doing (`slipway.trainer.diagnosis`).
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
"""The environment variable that names the file; without it no last words are kept."""
BYTES = 4096
"""Kubernetes keeps this much of a container's termination log."""
AGENT, SUPERVISOR = "agent", "supervisor"
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
    """The command of a node as a new program. Raises OSError when it cannot start."""
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

        `stacks` is the folder in which its ranks write where they are when they are asked.
        """
        self._kind, self._standstill = kind, Standstill()
        self._stopping = False
        self._signalled: set[int] = set()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGHUP, _die)
        environment = {**os.environ, **({STACKS: str(stacks)} if stacks else {})}
        self._process = start(command, folder, environment, output)

    def run(self) -> int:
        """Wait for the command; return its exit code, 128 + n when signal n ended it.

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
    """End with everything as a node that died. The first process of a container cannot kill itself: it has the code."""
    processes.kill_descendants()
    os.kill(os.getpid(), signal.SIGKILL)
    os._exit(128 + signal.SIGKILL)


class Standstill:
    """For how long each of some processes has been stopped, by the clock of who looks.

    A stopped process (SIGSTOP) does not end, so that whoever waits for its end waits for ever. The other nodes of a job
    take it for lost after `slipway.trainer.elastic.liveness.LOST_SECONDS` and go on without it; to have it back, or not
    to lose it, it must be ended. Nothing else looks like it: a process that waits for a disk or for a processor has
    another state.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._since = clock, dict[int, float]()

    def is_over_long(self, pid: int) -> bool:
        """Whether a process has been seen stopped, and never otherwise, for more than `LONGEST_SECONDS`."""
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


def run(
    command: list[str], folder: str, kind: str, termination_log: Path | None, start: StartCommand = executed
) -> int:
    """Run the command until no process of it is left; return its exit code. Raises OSError if it cannot start."""
    heard, stacks = LastWords() if termination_log else None, make_folder()
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
