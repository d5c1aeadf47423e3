"""Workers: processes that read, clean and encode at the same time, because threads would wait for Python's lock.

The library loky starts them without importing what the parent runs (a Dagster step takes seconds to import), and they
die with their parent, however it dies.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from trainer.base.processes import die_with_parent

Task = TypeVar("Task")
Result = TypeVar("Result")

WORTH_A_PROCESS = 4 << 20
"""Bytes of work below which starting processes takes longer than the work itself."""


def available() -> int:
    """How many processors this process may use; in a pod, as many as its limit allows."""
    from loky import cpu_count

    return int(cpu_count())


def run(
    function: Callable[[Task], Result], tasks: Sequence[Task], size: int, workers: int | None = None
) -> Iterator[Result]:
    """The results of the tasks in their order, each as soon as it and all results before it are ready.

    `size` is the approximate number of bytes that all tasks together process. Results must not depend on where a task
    runs. An exception of a task is raised here; the death of a worker, for example for lack of memory, raises
    RuntimeError.
    """
    count = min(workers or available(), len(tasks))
    if count <= 1 or size < WORTH_A_PROCESS:
        yield from map(function, tasks)
        return
    from loky import ProcessPoolExecutor
    from loky.process_executor import BrokenProcessPool

    executor: Any = ProcessPoolExecutor(count, initializer=die_with_parent, initargs=(os.getpid(),))
    try:
        yield from executor.map(function, tasks)
    except BrokenProcessPool as error:
        raise RuntimeError(f"a worker process of the dataset build died: {error}") from error
    finally:
        executor.shutdown(wait=True, kill_workers=True)
