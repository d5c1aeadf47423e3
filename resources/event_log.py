"""Dagster's event log, asked narrowly: has this been shown already?"""

import dagster as dg

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
