"""Documents of images: the columns of their table, and the equal pixels that were found with two labels."""

from pathlib import Path

import duckdb
import pyarrow as pa

from slipway.assets.datasets.building.build_log import BuildLog
from slipway.assets.datasets.documents.kind import DocumentKind
from slipway.assets.datasets.images import segments
from slipway.recipes.dataset import DatasetRecipe

VERSION = "3"
"""The version of this code, raised when the same extracts would give another table."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("split", pa.string()),
        pa.field("removed", pa.string()),
        pa.field("because", pa.string()),
    ]
)
COLUMNS = {
    "name": "the file the image comes from, relative to the source",
    "number": "the image's row in that file, from 0",
    "blake3": "hash of the pixels, which decides the split; null for an image that could not be read",
    "bytes": "length of the pixels in bytes",
    "label": "the name of the image's class",
    "split": "train or validation; null for an image that was left out",
    "removed": "why the image was left out; null for an image that is kept",
    "because": "what shows it: the image with the same pixels that is kept instead",
}
RELABELLED = """
    UPDATE live SET removed = 'duplicate_with_another_label' FROM (
        SELECT blake3, label FROM live WHERE removed IS NULL
    ) first
    WHERE live.removed = 'exact_duplicate' AND live.blake3 = first.blake3 AND live.label <> first.label
"""


def compare(
    connection: duckdb.DuckDBPyConnection,
    recipe: DatasetRecipe,
    paths: list[str],
    durable: Path,
    shop: Path,
    report: BuildLog,
) -> None:
    """Tell a duplicate whose label differs from that of the kept image from other duplicates."""
    connection.execute(RELABELLED)


def evaluation_sets(_: DatasetRecipe) -> list[str]:
    """Images are compared with no evaluation set."""
    return []


IMAGE_DOCUMENTS = DocumentKind(
    segment=segments.SCHEMA,
    reader=segments.reader,
    row_of=segments.row_of,
    configuration=segments.configuration,
    table=SCHEMA,
    own_columns="d.label",
    identity="d.blake3",
    kept_first=lambda recipe: "row",
    table_key=f"images/{VERSION}",
    compare=compare,
    evaluation_sets=evaluation_sets,
)
