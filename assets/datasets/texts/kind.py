"""Texts: what the lane of a dataset of texts does."""

from slipway.assets.datasets.kind import DatasetKind
from slipway.assets.datasets.texts import checks, documents, metadata, snapshot, steps
from slipway.trainer.data import shards

TEXTS = DatasetKind(
    versions={"documents": documents.VERSION, "snapshot": snapshot.VERSION},
    shards_of="token",
    table=documents.SCHEMA,
    checks=checks.CHECKS,
    read=shards.read_manifest,
    make_documents=steps.make_documents,
    make_snapshot=steps.make_snapshot,
    up_to_date=steps.up_to_date,
    outcomes=checks.outcomes,
    of_documents=metadata.of_documents,
    of_snapshot=metadata.of_snapshot,
)
