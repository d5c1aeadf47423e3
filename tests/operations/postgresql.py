"""A PostgreSQL server of a test's own, as its file of services describes it to libpq."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

NOBODY = 65534
PORT = 5432
"""Of a socket in a folder of the server's own: no other server is in the way."""
DATABASES = ("dagster", "mlflow", "drill")


def is_there() -> bool:
    """Whether this machine has a server and its client."""
    return all(map(shutil.which, ("initdb", "postgres", "pg_dump", "pg_restore", "createdb")))


@contextlib.contextmanager
def serving() -> Iterator[Path]:
    """A server with empty databases; gives its file of services."""
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    process = None
    try:
        user = NOBODY if os.geteuid() == 0 else None  # a server refuses to run as root
        if user is not None:
            os.chown(folder, user, user)
        _run(user, "initdb", "--no-sync", "--auth=trust", "--username=slipway", f"--pgdata={folder / 'data'}")
        server = [
            "postgres",
            "-D",
            str(folder / "data"),
            "-k",
            str(folder),
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
        ]
        process = subprocess.Popen(server, user=user, group=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        there = ["--host", str(folder), "--username=slipway"]
        _run(user, "pg_isready", "--timeout=60", *there, until=True)
        for name in DATABASES:
            _run(user, "createdb", *there, name)
        file = folder / "pg_service.conf"
        sections = [f"[{name}]\nhost={folder}\nport={PORT}\ndbname={name}\nuser=slipway\n" for name in DATABASES]
        file.write_text("\n".join(sections))
        yield file
    finally:
        if process is not None:
            process.terminate()
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)


def _run(user: int | None, *command: str, until: bool = False) -> None:
    """Run a program of the server; `until` it succeeds, at most a hundred times."""
    for _ in range(100 if until else 1):
        done = subprocess.run(command, user=user, group=user, capture_output=True, text=True, check=False, cwd="/")
        if done.returncode == 0:
            return
        if until:
            subprocess.run(["sleep", "0.2"], check=True)
    raise AssertionError(done.stderr)
