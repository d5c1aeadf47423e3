"""Dagster's event log: narrow queries for what it already shows."""

from collections.abc import Iterable, Iterator
from typing import Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

DATA_VERSION_TAG = "dagster/data_version"
AT_ONCE = 5000
"""The number of partitions in one query, since databases limit the number of variables."""


def materialized(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> bool:
    """Whether this partition of an asset has been materialised."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    return bool(instance.fetch_materializations(where, limit=1).records)


def data_versions(instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Iterable[str]) -> dict[str, str]:
    """The data version of each partition's last materialisation that has one."""
    versions: dict[str, str] = {}
    for some in _portions(sorted(partitions)):
        tags = instance.event_log_storage.get_latest_tags_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG], some
        )
        versions |= {
            name: tags_of_one[DATA_VERSION_TAG] for name, tags_of_one in tags.items() if DATA_VERSION_TAG in tags_of_one
        }
    return versions


def shown_partitions(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[str]:
    """The partitions of an asset that have a materialisation or an observation."""
    kinds = (dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION)
    latest = instance.event_log_storage.get_latest_storage_id_by_partition
    return {partition for kind in kinds for partition in latest(key, kind)}


def newest_record(instance: dg.DagsterInstance) -> int:
    """The number of the newest record of the event log. It falls if an older backup replaces the log."""
    return instance.event_log_storage.get_maximum_record_id() or 0


def _portions(values: list[str]) -> Iterator[list[str]]:
    """The values, in lists short enough for one query."""
    for first in range(0, len(values), AT_ONCE):
        yield values[first : first + AT_ONCE]


def observations(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> Iterator[dict[str, Any]]:
    """The metadata of all of a partition's observations, the newest first."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    cursor = None
    while True:
        page = instance.fetch_observations(where, limit=100, cursor=cursor)
        for record in page.records:
            if record.asset_observation is not None:
                yield {name: value.value for name, value in record.asset_observation.metadata.items()}
        if not page.has_more:
            return
        cursor = page.cursor


def observed_values(
    instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Iterable[str], name: str
) -> set[tuple[str, Any]]:
    """(partition, value) of each observation of these partitions that has the metadata `name`."""
    values: set[tuple[str, Any]] = set()
    for some in _portions(sorted(set(partitions))):
        where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=some)
        cursor = None
        more = True
        while more:
            page = instance.fetch_observations(where, limit=1000, cursor=cursor)
            page_observations = [record.asset_observation for record in page.records]
            values |= {
                (str(observation.partition), observation.metadata[name].value)
                for observation in page_observations
                if observation and name in observation.metadata
            }
            cursor = page.cursor
            more = page.has_more
    return values


def observed(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str, metadata: dict[str, Any]) -> bool:
    """Whether one of the partition's latest observations carries all of `metadata`."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_observations(where, limit=20).records
    candidates = [record.asset_observation.metadata for record in records if record.asset_observation]
    return any(
        all(name in candidate and candidate[name].value == value for name, value in metadata.items())
        for candidate in candidates
    )


def rejected(instance: dg.DagsterInstance, key: dg.AssetKey, checks: Iterable[str], partition: str) -> bool:
    """Whether the last evaluation of one of the asset's checks failed on this partition."""
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(key, name) for name in checks], PartitionKeyFilter(key=partition)
    )
    return any(record.status is AssetCheckExecutionRecordStatus.FAILED for record in latest.values())


def latest_ids(instance: dg.DagsterInstance, key: dg.AssetKey, kind: dg.DagsterEventType) -> dict[str, int]:
    """The number of each partition's newest event of this type, in one query."""
    return dict(instance.event_log_storage.get_latest_storage_id_by_partition(key, kind))


def newest_observation(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> dict[str, Any]:
    """The metadata of a partition's newest observation; empty if there is none."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    for record in instance.fetch_observations(where, limit=1).records:
        if record.asset_observation:
            return {name: value.value for name, value in record.asset_observation.metadata.items()}
    return {}
