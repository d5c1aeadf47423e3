"""Dagster's runs by tag: is one under way, how did the last one end, may another be requested."""

import time
from collections.abc import Mapping, Sequence

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
"""Dagster's own tags for the partitions of a run; set here, a request needs no look-up of all partitions."""
BACKOFF_SECONDS = 15.0
"""After a run that did not succeed, how long nobody asks for the next one."""


def unfinished(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> bool:
    """Whether a run with these tags is queued or running."""
    return bool(instance.get_run_records(RunsFilter(tags=dict(tags), statuses=UNFINISHED), limit=1))


def newest(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> RunRecord | None:
    """The newest run with these tags."""
    records = instance.get_run_records(RunsFilter(tags=dict(tags)), limit=1)
    return records[0] if records else None


def may_request(instance: dg.DagsterInstance, tags: Mapping[str, str]) -> bool:
    """Whether another run with these tags may be requested now."""
    record = newest(instance, tags)
    if record is None:
        return True
    if record.dagster_run.status in UNFINISHED:
        return False
    succeeded = record.dagster_run.status is DagsterRunStatus.SUCCESS
    return succeeded or time.time() - (record.end_time or 0.0) > BACKOFF_SECONDS


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
