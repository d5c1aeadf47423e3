"""The fork server: a process that has imported everything that ranks need, and forks the keepers of short jobs.

``python -m slipway.resources.launchers.local.fork_server ROOM`` reads the folder of a job from each line of its input.
It answers with the same line after a + once the job has a keeper, or after a - if it cannot start the job. The node's
process, the supervisor and the rank are forked too, so that nothing is imported again. The server ends with the process
that uses it, or after a time without requests; its jobs go on.
"""

import functools
import os
import select
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from slipway.resources.launchers.local import keeper
from slipway.resources.launchers.local.folder import JobFolder
from slipway.resources.launchers.local.gang import NodeHandle
from slipway.resources.launchers.local.overdue import KEEPER
from slipway.resources.launchers.local.warm_starts import ROOM_VARIABLE, SERVER
from slipway.trainer import preimport, supervisor
from slipway.trainer.base import codec, console, forked
from slipway.trainer.base.forked import Forked
from slipway.trainer.config.resolved import Config
from slipway.trainer.node import process

IDLE_SECONDS = 120.0
"""The time without requests after which the server ends, since it holds some hundred megabytes."""


def serve(requests: int, answers: int) -> None:
    """Answer requests until the input ends or `IDLE_SECONDS` have passed."""
    received = b""
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        piece = os.read(requests, 65_536)
        if not piece:
            return
        *lines, received = (received + piece).split(b"\n")
        for line in lines:
            try:
                _fork(line.decode(), (requests, answers))
                sign = b"+"
            except Exception:  # the launcher starts the job without this server
                traceback.print_exc()
                sign = b"-"
            os.write(answers, sign + line + b"\n")


def _fork(path: str, pipes: tuple[int, ...]) -> None:
    """Fork the keeper of a job, unless it has begun. Raises OSError, and Invalid for an invalid configuration."""
    folder = JobFolder(Path(path))
    config = {name: value for name, value in folder.order().job.config.items() if name != "format"}
    before = dict(os.environ)
    preimport.load(codec.build(Config, config), alone=True)
    os.environ.clear()
    os.environ.update(before)  # undo the variables of this job, since each rank has its own
    lock = folder.lock()
    if lock is None:
        return
    try:
        if not folder.has_begun():
            command = (sys.executable, "-P", "-m", KEEPER, str(folder.path))
            with (folder.path / "keeper.log").open("ab") as log:
                main = functools.partial(_keep, folder, lock, pipes)
                Forked(main, command, dict(os.environ), log.fileno(), str(folder.path), dies_by=None)
    finally:
        os.close(lock)


def _keep(folder: JobFolder, lock: int, pipes: tuple[int, ...]) -> int:
    for pipe in pipes:
        os.close(pipe)
    os.setsid()
    keeper.keep(folder, lock, _node)
    return 0


def _node(command: Sequence[str], environment: Mapping[str, str], log: int, lock: int) -> NodeHandle:
    """Fork the process of a node, which inherits the lock."""
    main = functools.partial(process.main, list(command[4:]), _supervisor)
    return Forked(main, command, environment, log, dies_by=signal.SIGHUP)


def _supervisor(command: list[str], folder: str, environment: Mapping[str, str], output: int | None) -> Forked:
    return Forked(functools.partial(supervisor.main, command[4:]), command, environment, output, folder)


def main() -> int:
    requests = os.dup(0)
    answers = os.dup(1)
    os.dup2(2, 1)
    del os.environ[ROOM_VARIABLE]
    forked.show_words((sys.executable, "-P", "-m", SERVER))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that ended keepers do not become zombies
    serve(requests, answers)
    return 0


if __name__ == "__main__":
    console.explain(SERVER, "forks the keepers of short jobs that follow one another")
    sys.exit(main())
