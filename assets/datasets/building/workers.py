"""Workers: processes that read, clean and encode in parallel, because threads would wait for Python's GIL.

They are processes on this machine, or on a Dask cluster inside `on`. The library loky starts local processes without
importing the parent's main module (a Dagster step takes seconds to import), and they die with their parent, however it
dies.
"""

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from slipway.assets.datasets.building.dask_cluster import DaskCluster, LostWorkers
from slipway.trainer.base.processes import die_with_parent

Task = TypeVar("Task")
Result = TypeVar("Result")

WORTH_A_PROCESS = 4 << 20
"""Bytes of work below which starting processes would take longer than the work itself."""

AHEAD = 16
"""Tasks to take in advance for each worker, enough that no worker idles while one task takes long."""

_cluster: ContextVar[DaskCluster | None] = ContextVar("cluster", default=None)
"""A context variable and not an argument, because the engine does not affect a build's result."""


@contextlib.contextmanager
def on(cluster: DaskCluster | None) -> Iterator[None]:
    """A context in which large work runs on the cluster's workers, or with None on this machine's."""
    token = _cluster.set(cluster)
    try:
        yield
    finally:
        _cluster.reset(token)


def current() -> DaskCluster | None:
    """The current cluster; None for this machine."""
    return _cluster.get()


def available() -> int:
    """The number of processors that this process may use; in a pod, as its limit allows."""
    from loky import cpu_count

    return int(cpu_count())


def run(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    size: int,
    workers: int | None = None,
    everywhere: bool = True,
) -> Iterator[Result]:
    """The results of the tasks in their order, each as soon as it and all earlier results are ready.

    A task is taken shortly before a worker is free, so memory holds only tasks in progress. `size` is the approximate
    number of bytes that all tasks together process; `everywhere` says whether other machines have the files that they
    name. Results must not depend on where a task runs, and a task may run twice, even at the same time. A task's
    exception is raised here. Raises LostWorkers if a worker on this machine dies, for example for lack of memory, and
    if a task kills one worker of a cluster after another.
    """
    cluster = current()
    waiting = iter(tasks)
    if cluster is not None and everywhere and size >= WORTH_A_PROCESS:
        yield from cluster.run(function, waiting)
        return
    first = list(itertools.islice(waiting, (workers or available()) if size >= WORTH_A_PROCESS else 1))
    waiting = itertools.chain(first, waiting)
    if len(first) <= 1:
        yield from map(function, waiting)
        return
    from loky import ProcessPoolExecutor
    from loky.process_executor import BrokenProcessPool

    executor: Any = ProcessPoolExecutor(len(first), initializer=die_with_parent, initargs=(os.getpid(),))
    try:
        begun = deque(executor.submit(function, task) for task in itertools.islice(waiting, AHEAD * len(first)))
        while begun:
            yield begun.popleft().result()
            begun.extend(executor.submit(function, task) for task in itertools.islice(waiting, 1))
    except BrokenProcessPool as error:
        raise LostWorkers(
            "a process of the dataset build was ended, and the usual reason is lack of memory: give the build more "
            "(on a cluster, resources.memory of the recipe), or lower reading.longest_megabytes, of which each process "
            "holds a few times as much"
        ) from error
    finally:
        executor.shutdown(wait=True, kill_workers=True)
