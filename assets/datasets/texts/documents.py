"""Documents of texts: the columns of their table, and how the texts are compared with each other."""

from pathlib import Path

import duckdb
import pyarrow as pa

from assets.datasets.documents.kind import DocumentKind
from assets.datasets.texts import comparison, segments
from recipes.dataset import DatasetRecipe

VERSION = "2"
"""The version of this code, raised when the same extracts would give another table."""

SCHEMA = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("language", pa.string()),
        pa.field("package", pa.string(), nullable=False),
        pa.field("masked", pa.int32(), nullable=False),
        pa.field("split", pa.string()),
        pa.field("removed", pa.string()),
    ]
)
COLUMNS = {
    "name": "the file the document comes from, relative to the source",
    "number": "the document's place in that file, from 0",
    "blake3": "hash of the cleaned text, which decides the split; null for a document that could not be read",
    "bytes": "length of the cleaned text in bytes of UTF-8",
    "language": "the language of the text; for source code the language that the file's suffix names",
    "package": "the first part of the name",
    "masked": "how many places were replaced by a placeholder",
    "split": "train or validation; null for a document that was left out",
    "removed": "why the document was left out; null for a document that is kept",
}


def compare(
    connection: duckdb.DuckDBPyConnection, recipe: DatasetRecipe, paths: list[str], durable: Path, shop: Path
) -> None:
    """Mark near-duplicates, then training documents that share a passage with what models are measured on."""
    comparison.remove_near_duplicates(connection, recipe.cleaning, paths)
    memory = durable / "datasets" / recipe.name / "verdicts.json"
    comparison.remove_contaminated(connection, recipe.cleaning, paths, memory, shop)


def evaluation_sets(recipe: DatasetRecipe) -> list[str]:
    """The BLAKE3 of each of the recipe's evaluation sets. Raises ValueError for one that is missing."""
    return comparison.digest_of_evaluation_sets(recipe.cleaning)


TEXT_DOCUMENTS = DocumentKind(
    segment=segments.SCHEMA,
    reader=segments.reader,
    row_of=segments.row_of,
    configuration=segments.configuration,
    table=SCHEMA,
    own_columns="d.language, d.masked, split_part(d.file, '/', 1) AS package",
    table_key=VERSION,
    compare=compare,
    evaluation_sets=evaluation_sets,
)
