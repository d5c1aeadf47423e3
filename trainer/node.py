"""One node of a job: a process under which everything dies with it, the first process of a pod or a child of a keeper.

``python -m trainer.node (rank|agent) FOLDER COMMAND...`` runs the command in the folder (empty: this one),
a lone rank or a torchrun agent with ranks below it. SIGTERM is passed to the ranks, SIGHUP (the keeper died) ends
everything at once. In a pod, the last words of those that failed are kept; see `trainer.last_words`.
"""

import contextlib
import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from trainer import processes
from trainer.last_words import FILE_VARIABLE, LastWords

POLL_SECONDS = 0.2
NOT_STARTED = 127
"""The exit code of a command that cannot be started, as shells have it."""


class Node:
    """The command and what is asked of it."""

    def __init__(self, command: list[str], folder: str, is_agent: bool, output: int | None = None) -> None:
        """Start the command; `output` is the descriptor that it writes to, ours without one."""
        self._is_agent = is_agent
        self._stopping = False
        self._told: set[int] = set()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGHUP, _die)
        bind = functools.partial(processes.die_with_parent, parent=os.getpid())
        self._process = subprocess.Popen(
            command,
            cwd=folder or None,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=bind,
        )

    def run(self) -> int:
        """Wait for the command; return its exit code, 128 + n when signal n ended it.

        What was told to stop has not done what it was to do, although it may have ended with 0.
        """
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(POLL_SECONDS)
                code = code or (-signal.SIGTERM if self._stopping else 0)
                return code if code >= 0 else 128 - code
            if self._stopping:
                self._tell_ranks()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _tell_ranks(self) -> None:
        """Send SIGTERM to each rank once, also to those that start only now; to an agent that has none yet.

        Not to an agent with ranks: it would kill them after a time-out of its own, while the time that a
        stopped job gets is the canceller's to say.
        """
        ranks = processes.children(self._process.pid) if self._is_agent else []
        for pid in set(ranks or [self._process.pid]) - self._told:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            self._told.add(pid)


def _die(number: int, frame: FrameType | None) -> None:
    processes.kill_descendants()
    os._exit(128 + number)


def run(command: list[str], folder: str, is_agent: bool, last_words: Path | None) -> int:
    """Run the command until nothing of it is left; return its exit code. Raises OSError when it cannot be started."""
    heard = LastWords() if last_words else None
    node = Node(command, folder, is_agent, heard.writing if heard else None)
    if heard:
        heard.listen()
    code = node.run()
    processes.kill_descendants()
    if heard and last_words and code:
        heard.write(last_words)
    return code


def main() -> int:
    kind, folder, *command = sys.argv[1:]
    processes.adopt_orphans()
    file = os.environ.get(FILE_VARIABLE)
    try:
        return run(command, folder, kind == "agent", Path(file) if file else None)
    except OSError as error:
        print(f"trainer: {' '.join(command)}: cannot be started: {error}", file=sys.stderr)
        return NOT_STARTED


if __name__ == "__main__":
    sys.exit(main())
