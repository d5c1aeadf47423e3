"""Workers: processes that read, clean and encode at the same time, because threads would wait for Python's lock.

They are processes of this machine, or those of a cluster of Dask where `on` says so. The library loky starts those of
this machine without importing what the parent runs (a Dagster step takes seconds to import), and they die with their
parent, however it dies.
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
"""Bytes of work below which starting processes takes longer than the work itself."""

AHEAD = 16
"""Tasks for each worker that are taken at a time: enough that none waits while one task takes long."""

_cluster: ContextVar[DaskCluster | None] = ContextVar("cluster", default=None)
"""Not an argument: the engine decides no byte of what a build makes, and nothing between here and the asset cares."""


@contextlib.contextmanager
def on(cluster: DaskCluster | None) -> Iterator[None]:
    """Within it, work that is worth it is done by the workers of the cluster; with None, by those of this machine."""
    token = _cluster.set(cluster)
    try:
        yield
    finally:
        _cluster.reset(token)


def current() -> DaskCluster | None:
    """The cluster whose workers are used now; None for those of this machine."""
    return _cluster.get()


def available() -> int:
    """How many processors this process may use; in a pod, as many as its limit allows."""
    from loky import cpu_count

    return int(cpu_count())


def run(
    function: Callable[[Task], Result],
    tasks: Iterable[Task],
    size: int,
    workers: int | None = None,
    everywhere: bool = True,
) -> Iterator[Result]:
    """The results of the tasks in their order, each as soon as it and all results before it are ready.

    A task is taken when there is soon a worker for it: memory holds those that are begun. `size` is the approximate
    number of bytes that all tasks together process; `everywhere` is whether other machines
    have the files that they name. Results must not depend on where a task runs, and a task may be done twice, even at
    the same time. An exception of a task is raised here; the death of a worker of this machine, for example for lack
    of memory, raises LostWorkers, and so does a task that ends one worker of a cluster after the other.
    """
    cluster, waiting = current(), iter(tasks)
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
