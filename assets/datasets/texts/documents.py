"""Documents of texts: the columns of their table, and the comparison of texts."""

from typing import Any

import duckdb
import pyarrow as pa

from slipway.assets.datasets.building.build import Build, DocumentKind, Reader, RowOf
from slipway.assets.datasets.building.build_log import logged_query
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
        pa.field("license", pa.string()),
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
    "license": "its licence, or its licences with commas between, if its file says so",
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
"""The SQL order of documents in `live` for each `kept_duplicate`; the texts' hashes break ties."""


class TextDocuments(DocumentKind):
    """Texts, which are cleaned and compared with each other and with evaluation texts."""

    segment = segments.SCHEMA
    table = SCHEMA
    table_key = VERSION
    own_columns = "d.whole, d.language, d.url, d.license, d.date, d.masked, split_part(d.file, '/', 1) AS package"
    identity = "d.identity"

    def reader(self, recipe: DatasetRecipe) -> Reader:
        return segments.reader(recipe)

    def row_of(self, recipe: DatasetRecipe) -> RowOf:
        return segments.row_of(recipe)

    def configuration(self, recipe: DatasetRecipe) -> list[Any]:
        return segments.configuration(recipe)

    def evaluation_sets(self, recipe: DatasetRecipe) -> list[str]:
        """The BLAKE3 of each of the recipe's evaluation sets. Raises ValueError for a missing file."""
        return comparison.digest_of_evaluation_sets(recipe.cleaning)

    def kept_first(self, recipe: DatasetRecipe) -> str:
        """The order that decides which of several duplicates is kept. Only `first` uses the names of files."""
        return KEPT_FIRST[recipe.cleaning.kept_duplicate]

    def compare(self, build: Build, connection: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
        """Mark near-duplicates, and then training documents that share a passage with evaluation texts."""
        with logged_query(connection, build.log, "comparing near-duplicates"):
            comparison.remove_near_duplicates(build, connection, paths, self.kept_first(build.recipe))
        comparison.remove_contaminated(build, connection, paths)


TEXT_DOCUMENTS = TextDocuments()
