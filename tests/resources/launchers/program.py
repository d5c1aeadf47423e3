"""The program of the contract's ranks. A job carries the text of this file: it runs wherever Python exists.

A rank tells facts as lines of JSON on its output, the first of them as it starts. Its config says what it `does`.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

SHOWN_VARIABLES = ("SLIPWAY_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "INCARNATION")
"""The prefixes of the environment variables in a note."""
RANK = {"rank": os.environ["RANK"], "process": uuid.uuid4().hex}
"""The author of a note. In a pod, the first process always has the same pid."""


def tell(**fact: Any) -> None:
    """Write a note as one line in one write: ranks that share an output do not mix their lines."""
    os.write(1, (json.dumps(fact | RANK) + "\n").encode())


def start() -> dict[str, Any]:
    """Read the config, tell that this rank runs, and return the config."""
    config: dict[str, Any] = json.loads(Path(sys.argv[1]).read_bytes())
    environment = {name: value for name, value in os.environ.items() if name.startswith(SHOWN_VARIABLES)}
    tell(pid=os.getpid(), environment=environment, config=config)
    return config


def exits() -> None:
    """Exit with the config's `code`, at rank `failing_rank` only if that is given."""
    config = start()
    if config.get("failing_rank", os.environ["RANK"]) == os.environ["RANK"]:
        sys.exit(config.get("code", 0))


def sleeps() -> None:
    """Sleep, with the default reaction to every signal."""
    start()
    time.sleep(600)


def runs() -> None:
    """Run until SIGTERM, then finish, and stay until the note is read."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    config = start()
    signal.sigwait([signal.SIGTERM])
    tell(finished=True)
    time.sleep(config.get("linger_seconds", 0))


def clings() -> None:
    """Ignore SIGTERM, in a session of its own, with a grandchild in another session.

    A given `dying_rank` kills itself as soon as all ranks run.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if os.getpgrp() != os.getpid():
        os.setsid()
    sleeper = "import os, time; os.fork() and os._exit(0); time.sleep(600)"
    subprocess.run([sys.executable, "-c", sleeper], start_new_session=True, check=True)
    config = start()
    tell(clinging=True)
    if "dying_rank" in config:
        meet()
    if config.get("dying_rank") == os.environ["RANK"]:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def meet() -> None:
    """Return once every rank has connected to the address that all were given, like a process group."""
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if os.environ["RANK"] == "0":
        with socket.create_server(("", address[1])) as listener:
            for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
                listener.accept()
        return
    while True:
        try:
            socket.create_connection(address).close()
            return
        except OSError:
            time.sleep(0.05)


if __name__ == "__main__":
    globals()[json.loads(Path(sys.argv[1]).read_bytes())["does"]]()
