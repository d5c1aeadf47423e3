"""The documents table of images: what became of each, as `assets.datasets.documents` has it for texts."""

from pathlib import Path

import pyarrow as pa

from assets.datasets import documents
from assets.datasets.documents import Documents
from assets.datasets.extraction import Extracts
from recipes.dataset import Dataset

VERSION = "1"
"""Of the code below: raised when the same extracts would give another table."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("split", pa.string()),
        pa.field("removed", pa.string()),
    ]
)
COLUMNS = {
    "name": "the file it comes from, relative to the source",
    "number": "its row in that file, from 0",
    "blake3": "hash of its pixels: decides its split; none for what could not be read",
    "bytes": "of its pixels",
    "label": "the name of its class",
    "split": "train or validation; none for an image that was left out",
    "removed": "why it was left out; none for an image that is kept",
}
RELABELLED = """
    UPDATE live SET removed = 'duplicate_with_another_label' FROM (
        SELECT blake3, label FROM live WHERE removed IS NULL
    ) first
    WHERE live.removed = 'exact_duplicate' AND live.blake3 = first.blake3 AND live.label <> first.label
"""


def write(recipe: Dataset, extracts: Extracts, durable: Path, shop: Path) -> Documents:
    """Leave out images whose pixels were there before, and write the table; equal extracts give equal bytes.

    Raises ValueError as `documents.write` does.
    """
    with documents.opened(recipe, extracts, durable, shop, "d.label") as connection:
        connection.execute(RELABELLED)
        return documents.leave(connection, SCHEMA, durable, shop)
