"""Terminal: a command line, typed. `slipway …` runs in a fork of a process that has imported what it needs.

Two hundred commands import the same modules; a fork of one that has imported them is the same process at a tenth of
the price. What is more than a call of `slipway` is typed into a shell.
"""

import multiprocessing
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

SHELL = re.compile(r"[&|;<>$]| -m |^(?!([A-Z_]+=\S+ )*slipway )")
"""What only a shell understands, and every other command; a text in quotes may have some of it and lose nothing."""
IMPORTED = [
    *(
        "slipway.cli.main",
        "torch",
        "dagster",
        "mlflow",
        "optuna",
        "slipway.assets.training",
        "slipway.assets.training_commands",
        "slipway.assets.sweeps.assets",
    ),
    *(
        "slipway.assets.datasets.assets",
        "slipway.operations.garbage",
        "slipway.operations.takedown",
        "slipway.deploy.embedded.serve",
    ),
]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(IMPORTED)


class TypedCommand:
    """A command that was typed, and what it has printed so far."""

    def __init__(self, process: "subprocess.Popen[bytes] | multiprocessing.process.BaseProcess", output: Path) -> None:
        self._process, self._output = process, output

    def output(self) -> str:
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def runs(self) -> bool:
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        return self._process.is_alive()

    def interrupt(self, how: int = signal.SIGINT) -> None:
        """Ctrl-C: the signal goes to all that the command has in the foreground."""
        if self.runs():
            assert self._process.pid is not None
            os.killpg(self._process.pid, how)

    def wait(self, seconds: float) -> int:
        """The exit code; one that takes longer is killed."""
        deadline = time.monotonic() + seconds
        while self.runs() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self.runs():
            self.interrupt(signal.SIGKILL)
        if isinstance(self._process, subprocess.Popen):
            return self._process.wait()
        self._process.join()
        code = self._process.exitcode
        assert code is not None
        return code


def typed(line: str, folder: Path, environ: Mapping[str, str], output: Path, anew: bool = False) -> TypedCommand:
    """Type a line in a folder; what it prints, errors too, goes into the file `output`. `anew`: it is no fork."""
    output.unlink(missing_ok=True)
    if anew or SHELL.search(re.sub(r"'[^']*'|\"[^\"]*\"", "", line)):
        with output.open("wb") as file:
            shell = ["bash", "-euo", "pipefail", "-c", line]
            process = subprocess.Popen(shell, cwd=folder, env=dict(environ), stdout=file, stderr=file, process_group=0)
        return TypedCommand(process, output)
    arguments = shlex.split(line)
    at = arguments.index("slipway")
    sets = dict(word.split("=", 1) for word in arguments[:at])
    fork = _forks.Process(target=_run, args=(arguments[at + 1 :], folder, {**environ, **sets}, output))
    fork.start()
    return TypedCommand(fork, output)


def _run(arguments: list[str], folder: Path, environ: Mapping[str, str], output: Path) -> None:
    """In the fork: the command itself."""
    os.setpgid(0, 0)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
    for number in (1, 2):
        os.dup2(file, number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:] = [*environ.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    from slipway.cli.main import main

    raise SystemExit(main(arguments))
