"""Dagster's event log, asked narrowly: has this been shown already?"""

from collections.abc import Iterable
from typing import Any

import dagster as dg
from dagster._core.event_api import PartitionKeyFilter
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

DATA_VERSION_TAG = "dagster/data_version"


def materialised(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> bool:
    """Whether this partition of an asset has been materialised."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    return bool(instance.fetch_materializations(where, limit=1).records)


def data_version(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str) -> str | None:
    """The data version of the partition's last materialisation, None when there is none."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_materializations(where, limit=1).records
    materialisation = records[0].asset_materialization if records else None
    return (materialisation.tags or {}).get(DATA_VERSION_TAG) if materialisation else None


def observed(instance: dg.DagsterInstance, key: dg.AssetKey, partition: str, metadata: dict[str, Any]) -> bool:
    """Whether one of the partition's latest observations carries all of `metadata`."""
    where = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[partition])
    records = instance.fetch_observations(where, limit=20).records
    found = [record.asset_observation.metadata for record in records if record.asset_observation]
    return any(all(name in shown and shown[name].value == value for name, value in metadata.items()) for shown in found)


def rejected(instance: dg.DagsterInstance, key: dg.AssetKey, checks: Iterable[str], partition: str) -> bool:
    """Whether one of the asset's checks said no when it was last evaluated on this partition."""
    latest = instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(key, name) for name in checks], PartitionKeyFilter(key=partition)
    )
    return any(record.status is AssetCheckExecutionRecordStatus.FAILED for record in latest.values())
