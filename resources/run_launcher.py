"""Run launcher of one machine: Dagster's own, which also says whether the process of a run is still there.

The code server that forked a run says so when its process dies; where that server is gone too, nobody does, and the run
would count as under way for ever. The run itself has on record in which process it is.
"""

from collections.abc import Iterator

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

from slipway.trainer.base import processes

MARGIN_SECONDS = 5.0
"""A process that has begun so much later than the run's was seen has only the same number."""


class LocalRunLauncher(DefaultRunLauncher):
    """Dagster's launcher, which looks for the processes of runs."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process lives; one that is not on record yet is coming up."""
        for pid, launched_at in self._processes(run):
            begun = processes.start_of(pid)
            if begun is None or begun > launched_at + MARGIN_SECONDS:
                return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {pid} is gone")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _processes(self, run: DagsterRun) -> Iterator[tuple[int, float]]:
        """The run's own process, and when it was there, in seconds since the epoch."""
        for entry in self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            event = entry.dagster_event
            metadata = event.engine_event_data.metadata if event else {}
            if "pid" in metadata and "step_keys" not in metadata:
                yield int(str(metadata["pid"].value)), entry.timestamp
                return
