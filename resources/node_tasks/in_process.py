"""Node tasks in this process, for a control plane that can access the nodes' NVMe folders."""

from collections.abc import Mapping

from slipway.resources.node_tasks.protocol import Say, TaskOutcome
from slipway.trainer.base.progress import every
from slipway.trainer.node_task import Task

LINE_SECONDS = 10.0


class InProcess:
    """Runs the tasks of one node after the other."""

    def run(self, tasks: Mapping[str, Task], say: Say) -> dict[str, TaskOutcome]:
        return {node: _done(node, task, say) for node, task in tasks.items()}

    def stop(self, tasks: Mapping[str, Task]) -> None:
        """Do nothing: the waiting process itself does the work."""


def _done(node: str, task: Task, say: Say) -> TaskOutcome:
    try:
        return TaskOutcome(task.perform(every(LINE_SECONDS, lambda progress: say(f"{node}: {progress}"))))
    except (ValueError, OSError) as error:
        return TaskOutcome(failure=str(error))
