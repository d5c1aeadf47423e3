"""Forked processes that look and behave as if their own command had started them.

A forked process has all imports of its parent, which take a new Python seconds. Its command line and environment are
those of the command that it replaces, so that lists of processes show it under that name.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from slipway.trainer.base import processes, regular_file

Main = Callable[[], int]
RESET = (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2)


class Forked:
    """A forked child of this process, with the part of `subprocess.Popen`'s interface for waiting."""

    def __init__(
        self,
        main: Main,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        output: int | None = None,
        folder: str = "",
        dies_by: signal.Signals | None = signal.SIGKILL,
    ) -> None:
        """Fork a process that runs `main` and ends with its exit code.

        words, environment: of the command that it replaces. output: replaces this process's output. folder: its working
        folder. dies_by: the signal that it gets when this process dies; None for none.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()

        def prepare() -> None:
            if dies_by is not None:
                processes.die_with_parent(parent, dies_by)
            _redirect(output)
            if folder:
                os.chdir(folder)
            show_environment(environment)
            show_words(arguments)

        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                live(main, prepare)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, -n when signal n killed it; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float) -> int:
        """Its exit code once it has ended. Raises subprocess.TimeoutExpired after so many seconds."""
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                select.select([descriptor], [], [], timeout)
            finally:
                os.close(descriptor)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


def start_helper(name: str, main: Callable[[], None]) -> int:
    """Fork a process that runs `main` and then ends; it helps this one, and dies with it. Returns its pid.

    name: the module in lists of processes. Call it before any thread is started. It ignores SIGTERM: a node that was
    asked to stop still needs it until its ranks have saved.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        processes.die_with_parent(parent)
        show_words((sys.executable, "-m", name))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        main()
    finally:
        os._exit(1)


def live(main: Main, prepare: Callable[[], None]) -> NoReturn:
    """The main function of a process that was just forked with blocked signals: prepare, unblock signals, run `main`.

    It ends with the exit code of `main`, or with 1 after an error.
    """
    code = 1
    try:
        for number in RESET:
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        prepare()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _redirect(output: int | None) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)


def show_words(arguments: Sequence[str]) -> None:
    """Replace the command line that /proc shows of this process, as far as there is room."""
    _overwrite(48, [word.encode() for word in arguments])  # arg_start and arg_end of proc(5)


def show_environment(environment: Mapping[str, str]) -> None:
    """Replace the environment of this process, and the one that /proc shows of it, as far as there is room there."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)  # copies each: what is overwritten below is not what libc reads
    _overwrite(50, [os.fsencode(f"{name}={value}") for name, value in environment.items()])  # env_start and env_end


def _overwrite(field: int, texts: Sequence[bytes]) -> None:
    """Write texts over the memory between two addresses, of which proc(5) has the first as this field of stat."""
    fields = regular_file.read(Path("/proc/self/stat")).rpartition(b")")[2].split()
    begin = int(fields[field - 3])
    end = int(fields[field - 2])
    text = b"\0".join(texts)
    if begin > 0 and len(text) < end - begin:
        ctypes.memmove(begin, text.ljust(end - begin, b"\0"), end - begin)
