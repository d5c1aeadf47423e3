"""Run launcher of one machine: Dagster's own, which also checks whether the process of a run is alive.

The code server that forked a run reports when the run's process dies. If that server is gone too, nobody reports it,
and the run would stay in progress for ever. So this launcher reads the process id from the run's event log.
"""

from collections.abc import Iterator

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher
from dagster._core.launcher.base import CheckRunHealthResult, WorkerStatus

from slipway.trainer.base import processes

MARGIN_SECONDS = 5.0
"""A process that started this much later than the run was seen is another process that reuses the id."""


class LocalRunLauncher(DefaultRunLauncher):
    """Dagster's launcher, with a health check of the runs' processes."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the run's process is alive. A run without a recorded process is still starting, so alive."""
        for pid, launched_at in self._processes(run):
            begun = processes.start_of(pid)
            if begun is None or begun > launched_at + MARGIN_SECONDS:
                return CheckRunHealthResult(WorkerStatus.FAILED, f"its process {pid} is gone")
        return CheckRunHealthResult(WorkerStatus.RUNNING)

    def _processes(self, run: DagsterRun) -> Iterator[tuple[int, float]]:
        """The id of the run's process, and when it was recorded, in seconds since the epoch."""
        for entry in self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            event = entry.dagster_event
            metadata = event.engine_event_data.metadata if event else {}
            if "pid" in metadata and "step_keys" not in metadata:
                yield int(str(metadata["pid"].value)), entry.timestamp
                return
