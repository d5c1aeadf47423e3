"""Dagster's runs by tag: whether a run is under way, how the last one ended, whether another may be requested."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg
from dagster import DagsterRunStatus, RunRecord, RunsFilter

UNFINISHED = [
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
    DagsterRunStatus.MANAGED,
]
PARTITION_TAG = "dagster/partition"
FIRST_PARTITION_TAG, LAST_PARTITION_TAG = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Dagster's own tags for the partitions of a run: with them, a request needs no look-up of all partitions."""
BACKOFF_SECONDS = 15.0
"""How long after a run that did not succeed no further run is requested."""


AT_ONCE = 5000
"""So many values in one query: databases have a limit of variables."""


@dataclass(frozen=True)
class RunFacts:
    """What a sensor needs of one run."""

    id: str
    status: DagsterRunStatus
    ended: float
    """Seconds since the epoch, 0 while it is unfinished."""
    tags: Mapping[str, str]

    @property
    def unfinished(self) -> bool:
        return self.status in UNFINISHED


_known: dict[str, dict[str, RunFacts]] = {}
"""By tag and id, the runs that the last look found. A run that has finished changes no more."""


class NewestRuns:
    """The newest run for each value of a tag, for all values that a sensor asks about at once.

    A look asks for the ids of these runs and of those that are unfinished, and reads the runs that are new or have
    finished since: what it costs follows what is new. Runs are ordered by when they were made, by no clock.
    """

    def __init__(self, instance: dg.DagsterInstance, tag: str, values: Iterable[str]) -> None:
        self._newest: dict[str, RunFacts] = {}
        before = _known.get(tag, {})
        current = dict[str, RunFacts]()
        for some in _portions(sorted(set(values))):
            where = {tag: some}
            ids = list(instance.get_run_ids(RunsFilter(tags=where)))
            unfinished = set(instance.get_run_ids(RunsFilter(tags=where, statuses=UNFINISHED)))
            ids = [*(unfinished - set(ids)), *ids]
            known = {id: before[id] for id in ids if id in before and before[id].unfinished == (id in unfinished)}
            for news in _portions([id for id in ids if id not in known]):
                known |= {record.dagster_run.run_id: _facts(record) for record in _records(instance, news)}
            for id in reversed(ids):
                if id in known:  # else it was deleted meanwhile
                    self._newest[known[id].tags[tag]] = known[id]
            current |= known
        _known[tag] = current

    def newest(self, value: str) -> RunFacts | None:
        """The newest run with this value of the tag."""
        return self._newest.get(value)

    def unfinished(self, value: str) -> bool:
        """Whether the newest run with this value is queued or running."""
        run = self._newest.get(value)
        return run is not None and run.unfinished

    def may_request(self, value: str) -> bool:
        """Whether another run with this value may be requested now."""
        run = self._newest.get(value)
        if run is None:
            return True
        succeeded = run.status is DagsterRunStatus.SUCCESS
        return not run.unfinished and (succeeded or time.time() - run.ended > BACKOFF_SECONDS)


def _facts(record: RunRecord) -> RunFacts:
    run = record.dagster_run
    return RunFacts(run.run_id, run.status, record.end_time or 0.0, {**run.tags})


def _records(instance: dg.DagsterInstance, ids: Sequence[str]) -> Sequence[RunRecord]:
    return instance.get_run_records(RunsFilter(run_ids=list(ids)))


def _portions(values: Sequence[str]) -> Iterator[list[str]]:
    for first in range(0, len(values), AT_ONCE):
        yield list(values[first : first + AT_ONCE])


def request(
    assets: Sequence[dg.AssetKey], tags: Mapping[str, str], first: str | None = None, last: str | None = None
) -> dg.RunRequest:
    """A run of these assets: of one partition, or of all from `first` to `last` in the order they were added."""
    partitions: dict[str, str] = {}
    if first is not None and last in (None, first):
        partitions = {PARTITION_TAG: first}
    elif first is not None and last is not None:
        partitions = {FIRST_PARTITION_TAG: first, LAST_PARTITION_TAG: last}
    return dg.RunRequest(asset_selection=list(assets), tags={**tags, **partitions})
