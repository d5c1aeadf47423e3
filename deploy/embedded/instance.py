"""The processes of the instance (code server, daemon, webserver), which start and end together.

A variable in their environment marks them, so that the next instance finds and ends the processes of a killed one.
Jobs do not have this mark: a training outlives the control plane, and the next control plane adopts it.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from dagster import DagsterEventType, DagsterRunStatus, RunsFilter

from slipway.deploy.embedded import CannotStart, home_lock, mlflow_pages
from slipway.operations import metadata_restore
from slipway.operations.upgrade import upgrading
from slipway.recipes import folder
from slipway.resources import access, credentials
from slipway.resources.home import DAGSTER_PAGE, MLFLOW_PAGE, Home
from slipway.resources.launchers.local.local_process import CONTROL_PLANE_VARIABLE
from slipway.resources.lease import HomeLease, LeaseHolder
from slipway.trainer.base import atomic, lock, proxy_bypass, regular_file, scratch
from slipway.trainer.base.paths import CODE
from slipway.trainer.base.processes import carrying, die_with_parent

SETTINGS = Path(__file__).with_name("dagster.yaml")
START_SECONDS = 300.0
"""How long a process may take to become ready. On a busy machine, imports alone take minutes."""
GRACE_SECONDS = 5.0
"""The time between SIGTERM and SIGKILL. Runs that wait for a training do not end by themselves, and may be killed."""
KILL_SECONDS = 15.0
SPACE = 1 << 30
"""The bytes that must be free at the start: several times the size of the demo's files."""
DEFAULT_PORT = 3000
LOCATION = """{ workspaceOrError { ... on Workspace {
  locationEntries { locationOrLoadError { __typename ... on PythonError { message } } }
} } }"""


@dataclass(frozen=True)
class Running:
    """A running instance."""

    home: Home
    url: str
    processes: dict[str, subprocess.Popen[bytes]]
    """The control plane's processes, by name."""
    mlflow: str = ""
    """The address of MLflow's pages; empty if they are not served."""
    second_to: LeaseHolder | None = None
    """Another control plane that decides for this home, such as `dagster dev`. This one then only shows the state."""

    def check(self) -> None:
        """Raises CannotStart if one of the processes has ended."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = self.home.dagster / f"{name}.log"
                raise CannotStart(f"the {name} ended with exit code {process.returncode}; see {log}")

    def failure_of(self, runs: list[str]) -> str | None:
        """Why one of these runs failed; None if none has."""
        with open_storage(self.home) as storage:
            for run in storage.get_runs(RunsFilter(run_ids=runs, statuses=[DagsterRunStatus.FAILURE])) if runs else []:
                failed = storage.all_logs(run.run_id, of_type=DagsterEventType.STEP_FAILURE)
                events = [entry.dagster_event for entry in failed if entry.dagster_event]
                causes = [
                    str(event.step_failure_data.user_failure_data or event.step_failure_data.error) for event in events
                ]
                return f"run {run.run_id}: {causes[0] if causes else 'failed before its first step'}"
        return None


def open_storage(home: Home) -> dg.DagsterInstance:
    """Dagster's storage of this home, as a context manager.

    A lock lets only one process open it at a time. If two processes create it at the same time, Dagster records two
    versions of its tables, and can never open them again.
    """
    with lock.exclusive(home.dagster):
        return dg.DagsterInstance.from_config(str(home.dagster))


@contextlib.contextmanager
def running(home: Home, port: int | None) -> Iterator[Running]:
    """Start the instance, and end all its processes afterwards. If `port` is None, it uses any free port.

    Raises CannotStart if the home is not writable or in use, or if the port is in use, and the ValueError of
    `slipway.operations.upgrade.upgrading.ready`.
    """
    prepare(home)
    with home_lock.taken(home) as mark:
        home_lock.describe(mark, "")
        end_leftovers(home)
        chosen = _usable_port(port)
        pages = _mlflow_port(chosen)
        with _writable(home):
            upgrading.ready(home.durable)
        first = decides_elsewhere(home)
        if first is None:
            _fail_lost_runs(home)
        with scratch.folder("slipway-sockets") as sockets:
            beside = f"http://{mlflow_pages.HOST}:{pages}" if pages else ""
            instance = Running(home, f"http://127.0.0.1:{chosen}", {}, beside, first)
            others = []
            try:
                _start(instance, sockets, chosen)
                _await(instance, "webserver", functools.partial(_knows_definitions, instance.url))
                home_lock.describe(mark, instance.url)
                if pages:  # last, because no other process depends on it
                    serve = mlflow_pages.command(home.root / "mlflow.db", pages)
                    others.append(_spawn(instance, "mlflow", serve))
                yield instance
            finally:
                _stop([*instance.processes.values(), *others])
                end_leftovers(home)


def prepare(home: Home) -> None:
    """Create the folders of the home and write Dagster's settings. Completes an interrupted restore.

    Raises CannotStart if the home is not writable or has too little free space.
    """
    with _writable(home):
        metadata_restore.finish(home)
        for folder in (home.dagster, home.durable, home.nodes, home.jobs):
            folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(home.root).free
        if free < SPACE:
            raise CannotStart(f"SLIPWAY_HOME {home.root}: found {free >> 20} MiB free, expected {SPACE >> 20} or more")
        atomic.replace(home.dagster / "dagster.yaml", regular_file.read(SETTINGS))


@contextlib.contextmanager
def _writable(home: Home) -> Iterator[None]:
    """Turn errors of the file system into a CannotStart that says that the home is not writable."""
    try:
        yield
    except OSError as error:
        raise CannotStart(f"SLIPWAY_HOME {home.root}: found {error.strerror!r}, expected a writable folder") from None


def environment(home: Home) -> dict[str, str]:
    """The environment of the instance's processes."""
    return {
        **os.environ,
        "DAGSTER_HOME": str(home.dagster),
        "SLIPWAY_HOME": str(home.root),
        folder.VARIABLE: str(folder.selected()),
        CONTROL_PLANE_VARIABLE: str(home.root),
        "PYTHONPATH": os.pathsep.join(filter(None, [str(CODE), os.environ.get("PYTHONPATH")])),
        "PYTHONWARNINGS": "ignore",
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }


def end_leftovers(home: Home) -> None:
    """End the remaining processes of this home's control plane, by pid. Jobs go on."""
    mark = {CONTROL_PLANE_VARIABLE: str(home.root)}
    deadline = time.monotonic() + KILL_SECONDS
    while time.monotonic() < deadline:
        leftovers = [pid for pid in carrying(mark) if pid != os.getpid()]
        if not leftovers:
            return
        for pid in leftovers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def decides_elsewhere(home: Home) -> LeaseHolder | None:
    """Another control plane that decides for this home, such as `dagster dev`; None if there is none.

    Call this after `end_leftovers` and before the own instance runs.
    """
    return HomeLease(home.root).current_holder()


def _fail_lost_runs(home: Home) -> None:
    """End the records of runs that died with the last control plane; otherwise they would count as running."""
    with open_storage(home) as instance:
        lost = [DagsterRunStatus.NOT_STARTED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED]
        for run in instance.get_runs(RunsFilter(statuses=lost)):
            instance.report_run_failed(run, "lost with the control plane that ran it")
        for run in instance.get_runs(RunsFilter(statuses=[DagsterRunStatus.CANCELING])):
            instance.report_run_canceled(run, "lost with the control plane that was cancelling it")


def _start(instance: Running, sockets: Path, port: int) -> None:
    """Start the processes, first the code server, without which the webserver shows no assets."""
    code = sockets / "code.sock"
    workspace = sockets / "workspace.yaml"
    workspace.write_text(f"load_from:\n  - grpc_server:\n      socket: {code}\n      location_name: slipway\n")
    # The code server is a proxy. When a person reloads the definitions in the UI, it starts a server with new recipes.
    server = ["dagster", "code-server", "start", "--socket", str(code), "--module-name", "slipway.definitions"]
    server += [
        "--working-directory",
        str(CODE),
        "--location-name",
        "slipway",
        "--startup-timeout",
        str(int(START_SECONDS)),
    ]
    others = {
        "daemon": ["dagster._daemon", "run", "-w", str(workspace)],
        "webserver": ["slipway.resources.pages.webserver", "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace)],
    }
    instance.processes["code-server"] = _spawn(instance, "code-server", server)
    _await(instance, "code-server", code.exists)
    for name, command in others.items():
        instance.processes[name] = _spawn(instance, name, command)


def _spawn(instance: Running, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    """A process of the control plane, which dies with this process and gets no Ctrl-C from the terminal."""
    parent = os.getpid()
    with open(instance.home.dagster / f"{name}.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            cwd=CODE,
            env={DAGSTER_PAGE: instance.url, MLFLOW_PAGE: instance.mlflow, **environment(instance.home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: die_with_parent(parent),
        )


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    for process in processes:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(instance: Running, name: str, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        instance.check()
        if time.monotonic() > deadline:
            log = instance.home.dagster / f"{name}.log"
            raise CannotStart(f"the {name} was not ready within {START_SECONDS:.0f} s; see {log}")
        time.sleep(0.1)


def _knows_definitions(url: str) -> bool:
    """Whether the webserver has loaded the definitions, which takes longer than until its first answer."""
    request = urllib.request.Request(f"{url}/graphql", json.dumps({"query": LOCATION}).encode())
    request.add_header("Content-Type", "application/json")
    file = access.token_file()
    if file is not None:
        request.add_header("Authorization", f"Bearer {credentials.token(file)}")
    with (
        contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError),
        proxy_bypass.opener(url).open(request, timeout=5) as response,
    ):
        entries = json.load(response)["data"]["workspaceOrError"]["locationEntries"]
        return all((entry["locationOrLoadError"] or {}).get("__typename") == "RepositoryLocation" for entry in entries)
    return False


def _mlflow_port(ui: int) -> int | None:
    """The port of MLflow's pages next to a UI on this port. Raises CannotStart for an unusable setting."""
    try:
        chosen = mlflow_pages.port(ui, _is_free)
    except ValueError as error:
        raise CannotStart(str(error)) from None
    return None if chosen is None else chosen or _bound(0)


def _usable_port(port: int | None) -> int:
    try:
        return _bound(port or 0)
    except OSError as error:
        problem = f"SLIPWAY_PORT: found port {port} unusable ({error.strerror})"
        raise CannotStart(f"{problem}, expected a free one") from None


def _is_free(port: int) -> bool:
    try:
        return bool(_bound(port))
    except OSError:
        return False


def _bound(port: int) -> int:
    """The port after a test that a server can use it; 0 asks for any free port. Raises OSError."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return int(probe.getsockname()[1])
