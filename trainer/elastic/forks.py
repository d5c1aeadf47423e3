"""Forks: the ranks of a node as children of its supervisor, each as clean as a process that was started by hand.

A rank has its own session, environment and random state, the default reaction to every signal, and the command line of
a rank in lists of processes. It dies with the supervisor. It exits without tearing down Python's modules, which would
take seconds.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from slipway.trainer.base import forked, processes

GONE_SECONDS = 60.0
"""Killed ranks may take this long to end: the memory of their GPUs is released first."""


class Fork:
    """A forked rank."""

    def __init__(
        self, rank: int, main: Callable[[], int], environment: Mapping[str, str], arguments: Sequence[str]
    ) -> None:
        """Fork a process that runs `main` and ends with the code that it returns.

        environment: added to that of this process. arguments: the command line in lists of processes.
        """
        self.rank = rank
        self.local = int(environment["LOCAL_RANK"])
        self.code: int | None = None
        """Its exit code, -n when signal n killed it; None while it runs."""
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _run(parent, main, environment, arguments)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.descriptor = os.pidfd_open(self.pid)
        """Becomes readable when it has ended."""

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                os.close(self.descriptor)
        return self.code

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def kill(forks: Collection[Fork], spared: Collection[int] = ()) -> list[int]:
    """Kill ranks with all their descendants, and wait for their end; returns the pids that cannot be killed.

    spared: the pids of children that stay, with their descendants. The caller must be a subreaper.
    """
    deadline = time.monotonic() + GONE_SECONDS
    for fork in forks:
        for send in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError):
                if fork.poll() is None or send is os.killpg:
                    send(fork.pid, signal.SIGKILL)
    while time.monotonic() < deadline:
        running = [fork for fork in forks if fork.poll() is None]
        # A rank's descendants may have sessions of their own; they become children of this process.
        survivors = [] if running else _survivors(spared)
        if not running and not survivors:
            return []
        for pid in survivors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.002)
    return [*(fork.pid for fork in forks if fork.poll() is None), *_survivors(spared)]


def _survivors(spared: Collection[int]) -> list[int]:
    pids = processes.descendants(os.getpid())
    spared_pids = {pid for process in spared for pid in (process, *processes.descendants(process))}
    return [pid for pid in pids if pid not in spared_pids]


def _run(parent: int, main: Callable[[], int], environment: Mapping[str, str], arguments: Sequence[str]) -> None:
    """The main function of the forked process; does not return."""

    def prepare() -> None:
        os.setsid()
        processes.die_with_parent(parent)
        os.environ.update(environment)
        forked.show_words(arguments)
        _draw_anew()

    forked.live(main, prepare)


def _draw_anew() -> None:
    """Seed numpy's generator, which would give every rank the same numbers; Python's seeds itself after a fork."""
    numpy = sys.modules.get("numpy")
    if numpy:
        numpy.random.seed()
