"""Workers: processes that read, clean and encode beside each other, for work that Python's lock would serialise.

They are loky's, which start without importing what the parent runs (a Dagster step takes seconds to import),
and die with it, however it dies.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from trainer.processes import die_with_parent

Task = TypeVar("Task")
Result = TypeVar("Result")

WORTH_A_PROCESS = 4 << 20
"""Bytes of work below which starting processes takes longer than doing it here."""


def available() -> int:
    """How many processors this process may use: in a pod, what its limit allows of the node's."""
    from loky import cpu_count

    return int(cpu_count())


def run(
    function: Callable[[Task], Result], tasks: Sequence[Task], size: int, workers: int | None = None
) -> Iterator[Result]:
    """The results of the tasks in their order, each as soon as it and those before it are there.

    `size` is about how many bytes all of them go through. Results must not depend on where a task runs. What a
    task raises is raised here, and a worker that dies (out of memory, say) raises RuntimeError.
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
