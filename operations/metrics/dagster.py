"""The facts of Dagster for a scrape: sensors' ticks, daemons, unfinished runs, and how far behind the event log is."""

import time
from collections.abc import Iterable

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorState, TickStatus

from slipway.assets import keys
from slipway.operations.metrics.facts import DagsterReading, SensorReading, TrainingReading
from slipway.resources.event_log import data_versions, newest_record

UNFINISHED = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)


class DagsterReader:
    """Reads Dagster's storage, scrape by scrape."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance
        self._logged: set[tuple[str, str]] = set()
        """Partition and manifest of the checkpoints that the event log is known to have."""

    def read(self, trainings: Iterable[TrainingReading]) -> DagsterReading:
        """What Dagster says now; `trainings` are those whose newest checkpoints it should have."""
        now = time.time()
        queued = self._instance.get_run_records(
            dg.RunsFilter(statuses=[dg.DagsterRunStatus.QUEUED]), limit=1, ascending=True
        )
        return DagsterReading(
            sensors=tuple(self._sensor(state, now) for state in self._instance.all_instigator_state(
                instigator_type=InstigatorType.SENSOR
            )),
            daemons={
                kind: max(0.0, now - beat.timestamp)
                for kind, beat in self._instance.run_storage.get_daemon_heartbeats().items()
            },
            runs={
                status.value.lower(): self._instance.get_runs_count(dg.RunsFilter(statuses=[status]))
                for status in UNFINISHED
            },
            queued=max(0.0, now - queued[0].create_timestamp.timestamp()) if queued else 0.0,
            records=newest_record(self._instance),
            lag=self._lag(trainings, now),
        )  # fmt: skip

    def _sensor(self, state: InstigatorState, now: float) -> SensorReading:
        ticks = self._instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=2)
        done = [tick for tick in ticks if tick.status is not TickStatus.STARTED]
        if not done:
            return SensorReading(state.instigator_name, state.is_running)
        last = done[0]
        took = None if last.end_timestamp is None else max(0.0, last.end_timestamp - last.timestamp)
        failed = last.status is TickStatus.FAILURE
        return SensorReading(state.instigator_name, state.is_running, max(0.0, now - last.timestamp), took, failed)

    def _lag(self, trainings: Iterable[TrainingReading], now: float) -> float:
        """For how long the event log has lacked a checkpoint; each is asked for until it is there."""
        unlogged: dict[str, dict[str, tuple[str, float]]] = {}
        for training in trainings:
            if training.latest is not None:
                partition = keys.checkpoint_partition(training.id, training.latest.step)
                if (partition, training.latest.manifest) not in self._logged:
                    unlogged.setdefault(training.recipe, {})[partition] = training.latest.manifest, training.latest.at
        oldest = now
        for recipe, checkpoints in unlogged.items():
            versions = data_versions(self._instance, keys.key(recipe, "checkpoint"), checkpoints)
            for partition, (manifest, at) in checkpoints.items():
                if versions.get(partition) == manifest:
                    self._logged.add((partition, manifest))
                else:
                    oldest = min(oldest, at)
        return now - oldest
