"""Documents of texts: the columns of their table, and how the texts are compared with each other."""

from pathlib import Path

import duckdb
import pyarrow as pa

from slipway.assets.datasets.building.build_log import BuildLog
from slipway.assets.datasets.building.phase import asking
from slipway.assets.datasets.documents.kind import DocumentKind
from slipway.assets.datasets.texts import comparison, segments
from slipway.recipes.dataset import DatasetRecipe

VERSION = "7"
"""The version of this code, raised when the same extracts would give another table."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("language", pa.string()),
        pa.field("url", pa.string()),
        pa.field("licence", pa.string()),
        pa.field("date", pa.string()),
        pa.field("package", pa.string(), nullable=False),
        pa.field("masked", pa.int32(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("removed", pa.string()),
        pa.field("because", pa.string()),
    ]
)
COLUMNS = {
    "name": "the file the document comes from, relative to the source",
    "number": "the document's place in that file, from 0",
    "blake3": "hash of the cleaned text; null for a document that could not be read",
    "bytes": "length of the cleaned text in bytes of UTF-8",
    "language": "the language of the text; for source code the language that the file's suffix names",
    "url": "where the document comes from, if its file says so",
    "licence": "its licence, or its licences with commas between, if its file says so",
    "date": "its date, if its file says so",
    "package": "the first part of the name",
    "masked": "how many places were replaced by a placeholder",
    "split": "train or validation, by the hash of the text before cleaning; null for a document that was left out",
    "removed": "why the document was left out; null for a document that is kept",
    "because": "what shows it: the document that is kept instead, or the held-out document and the passage in both",
}

KEPT_FIRST = {
    "first": "live.row",
    "longest": "live.bytes DESC, live.identity, live.row",
    "newest": "try_cast(live.date AS TIMESTAMPTZ) DESC NULLS LAST, live.identity, live.row",
}
"""For each `kept_duplicate`, the order of documents of `live`: that of their texts' hashes among equal ones."""


def compare(
    connection: duckdb.DuckDBPyConnection,
    recipe: DatasetRecipe,
    paths: list[str],
    durable: Path,
    shop: Path,
    report: BuildLog,
) -> None:
    """Mark near-duplicates, then training documents that share a passage with what models are measured on."""
    with asking(connection, report, "comparing near-duplicates"):
        comparison.remove_near_duplicates(connection, recipe.cleaning, paths, kept_first(recipe), shop)
    memory = durable / "datasets" / recipe.name
    comparison.remove_contaminated(connection, recipe.cleaning, paths, memory, shop, report)


def kept_first(recipe: DatasetRecipe) -> str:
    """The order in which one of several duplicates is chosen to be kept. Names of files decide in `first` alone."""
    return KEPT_FIRST[recipe.cleaning.kept_duplicate]


def evaluation_sets(recipe: DatasetRecipe) -> list[str]:
    """The BLAKE3 of each of the recipe's evaluation sets. Raises ValueError for one that is missing."""
    return comparison.digest_of_evaluation_sets(recipe.cleaning)


TEXT_DOCUMENTS = DocumentKind(
    segment=segments.SCHEMA,
    reader=segments.reader,
    row_of=segments.row_of,
    configuration=segments.configuration,
    table=SCHEMA,
    own_columns="d.whole, d.language, d.url, d.licence, d.date, d.masked, split_part(d.file, '/', 1) AS package",
    identity="d.identity",
    kept_first=kept_first,
    table_key=VERSION,
    compare=compare,
    evaluation_sets=evaluation_sets,
)
