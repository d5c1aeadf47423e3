"""Images: what the lane of a dataset of labelled images does."""

from slipway.assets.datasets.images import checks, documents, metadata, snapshot, steps
from slipway.assets.datasets.kind import DatasetKind
from slipway.trainer.data import images

IMAGES = DatasetKind(
    versions={"documents": documents.VERSION, "snapshot": snapshot.VERSION},
    shards_of="image",
    table=documents.SCHEMA,
    checks=checks.CHECKS,
    read=images.read_manifest,
    make_documents=steps.make_documents,
    make_snapshot=steps.make_snapshot,
    up_to_date=steps.up_to_date,
    outcomes=checks.outcomes,
    of_documents=metadata.of_documents,
    of_snapshot=metadata.of_snapshot,
)
