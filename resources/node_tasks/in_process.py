"""Node tasks in this process: of a control plane that sees the nodes' NVMe folders itself."""

from collections.abc import Mapping

from resources.node_tasks.protocol import Done, Say
from trainer.node_task import Task
from trainer.progress import every

LINE_SECONDS = 10.0


class InProcess:
    """One node after the other."""

    def run(self, tasks: Mapping[str, Task], say: Say) -> dict[str, Done]:
        return {node: _done(node, task, say) for node, task in tasks.items()}

    def stop(self, tasks: Mapping[str, Task]) -> None:
        """Whoever waits is the one who works: nothing is left to stop."""


def _done(node: str, task: Task, say: Say) -> Done:
    try:
        return Done(task.perform(every(LINE_SECONDS, lambda progress: say(f"{node}: {progress}"))))
    except (ValueError, OSError) as error:
        return Done(failure=str(error))
