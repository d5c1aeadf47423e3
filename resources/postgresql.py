"""PostgreSQL: backup and restore of databases with pg_dump and pg_restore.

PGSERVICEFILE names a file, a mounted Secret, with one section per database: [dagster], [mlflow], and [drill] for an
empty database into which each backup is restored. Commands name the section, so no argument or message has a password.
"""

import configparser
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.resources import credentials
from slipway.resources.errors import Unavailable

if TYPE_CHECKING:
    from dagster import DagsterInstance

SERVICE_FILE = "PGSERVICEFILE"
BACKED_UP = ("dagster", "mlflow")
DRILL = "drill"
SUFFIX = ".dump"
CONNECT_SECONDS = 30
END_OF_ROWS = b"\\.\n"
"""The line that ends the rows of a table in pg_restore's output."""


def serves(instance: "DagsterInstance") -> bool:
    """Whether Dagster's storage is in PostgreSQL."""
    return type(instance.run_storage).__module__.startswith("dagster_postgres")


def sections(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The databases in the service file; none without such a file. Raises ValueError and OSError."""
    if not environ.get(SERVICE_FILE):
        return []
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(credentials.read_text(Path(environ[SERVICE_FILE])))
    except configparser.Error as error:
        line = f", line {error.lineno}" if isinstance(error, configparser.MissingSectionHeaderError) else ""
        message = f"{environ[SERVICE_FILE]}{line}: found no sections, expected [dagster] and host=, dbname= below it"
        raise ValueError(message) from None  # the cause would show the line, which may hold a password
    return parser.sections()


def services() -> list[str]:
    """The databases to back up: Dagster's, and MLflow's if the file has it. Raises as `sections`, and ValueError."""
    names = [name for name in BACKED_UP if name in sections()]
    if not names:
        raise ValueError(f"{SERVICE_FILE}={os.environ.get(SERVICE_FILE, '')}: found no section [dagster], expected one")
    return names


def dumps(folder: Path) -> dict[str, Path]:
    """The dumps in a folder, by database."""
    files = {name: folder / f"{name}{SUFFIX}" for name in BACKED_UP}
    return {name: path for name, path in files.items() if path.is_file()}


def dump(service: str, folder: Path) -> None:
    """Dump a consistent snapshot of a database into a folder. Raises Unavailable and ValueError, as all below do."""
    _do("pg_dump", "--format=custom", *_PLAIN, f"--file={folder / f'{service}{SUFFIX}'}", f"--dbname=service={service}")


def restore(service: str, dump: Path) -> None:
    """Restore a database in one transaction."""
    _do(
        *("pg_restore", "--single-transaction", "--clean", "--if-exists", "--exit-on-error"),
        *(*_PLAIN, f"--dbname=service={service}", str(dump)),
    )


def rows(dump: Path, table: str) -> int:
    """The number of rows of a table in a dump; 0 if the dump has no such table."""
    tool = _tool("pg_restore")
    command = [tool, "--data-only", f"--table={table}", "--file=-", str(dump)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        count = 0
        inside = False
        for line in process.stdout:
            if inside:
                inside = line != END_OF_ROWS
                count += inside
            else:
                inside = line.startswith(b"COPY ")
        errors = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise ValueError(f"{dump.name}: pg_restore finds {_last(errors)}")
    return count


def rows_of(service: str, table: str) -> int:
    """The number of rows of a table in a database."""
    with _connected(service) as connection, connection.cursor() as cursor:
        cursor.execute(f'SELECT count(*) FROM "{table}"')
        [(count,)] = cursor.fetchall()
    return int(count)


def require_alone(service: str) -> None:
    """Raises ValueError if another client is connected to a database."""
    with _connected(service) as connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        [(others,)] = cursor.fetchall()
    if others:
        raise ValueError(
            f"database {service}: found {others} other connections, expected none: scale the control plane to 0 "
            "first (docs/formats.md#upgrade)"
        )


_PLAIN = ("--no-owner", "--no-privileges", "--no-password")


@contextlib.contextmanager
def _connected(service: str) -> Iterator[Any]:
    import psycopg2  # type: ignore[import-untyped]

    try:
        connection = psycopg2.connect(service=service, connect_timeout=CONNECT_SECONDS)
    except psycopg2.OperationalError as error:
        raise Unavailable(f"database {service}: {_last(str(error))}") from None
    with contextlib.closing(connection):
        yield connection


def _do(tool: str, *arguments: str) -> None:
    done = subprocess.run(
        [_tool(tool), *arguments], capture_output=True, text=True, errors="replace", check=False, env=_environment()
    )
    if done.returncode:
        raise Unavailable(f"{tool}: {_last(done.stderr)}")


def _tool(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        raise ValueError(
            f"{name}: found no such program, expected the PostgreSQL client of the server's version or newer"
        )
    return program


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C", "PGCONNECT_TIMEOUT": str(CONNECT_SECONDS)}


def _last(errors: str) -> str:
    """The first line of an error. The other lines repeat the statement, which may contain people's data."""
    return (errors.strip().splitlines() or ["it ended without a message"])[0]
