"""Documents of images: the columns of their table, equal pixels with different labels, and the classes."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building.build import Build, DocumentKind, Reader, RowOf
from slipway.assets.datasets.documents.document_table import SPLITS
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


class ImageDocuments(DocumentKind):
    """Labelled images. They are compared by their pixels, and not with evaluation sets."""

    segment = segments.SCHEMA
    table = SCHEMA
    table_key = f"images/{VERSION}"
    own_columns = "d.label"
    identity = "d.blake3"

    def reader(self, recipe: DatasetRecipe) -> Reader:
        return segments.reader(recipe)

    def row_of(self, recipe: DatasetRecipe) -> RowOf:
        return segments.row_of(recipe)

    def configuration(self, recipe: DatasetRecipe) -> list[Any]:
        return segments.configuration(recipe)

    def evaluation_sets(self, recipe: DatasetRecipe) -> list[str]:
        return []

    def kept_first(self, recipe: DatasetRecipe) -> str:
        return "row"

    def compare(self, build: Build, connection: duckdb.DuckDBPyConnection, paths: list[str]) -> None:
        """Mark duplicates whose label differs from the kept image's label."""
        connection.execute(RELABELLED)


IMAGE_DOCUMENTS = ImageDocuments()


@dataclass(frozen=True)
class ClassCounts:
    """The kept images of each class by split."""

    by_split: dict[str, dict[str, int]]

    @property
    def totals(self) -> list[tuple[str, int]]:
        """The images of each class in both splits together."""
        return sorted(sum((Counter(counts) for counts in self.by_split.values()), Counter()).items())

    def missing_classes(self) -> list[str]:
        """The classes without an image in one of the splits."""
        return [name for name, _ in self.totals if not all(counts.get(name) for counts in self.by_split.values())]


def count_classes(table: Path) -> ClassCounts:
    """The kept images of each class in a documents table."""
    rows = pq.read_table(table, columns=["split", "label"]).group_by(["split", "label"]).aggregate([([], "count_all")])
    by_split: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for row in rows.to_pylist():
        if row["split"] is not None:
            by_split[row["split"]][row["label"]] = row["count_all"]
    return ClassCounts(by_split)


def class_names(table: Path) -> tuple[str, ...]:
    """The classes of a table's kept images: in numerical order if all are whole numbers, else in alphabetical order."""
    columns = pq.read_table(table, columns=["label"], filters=pa.compute.field("removed").is_null())
    names = sorted(columns["label"].unique().to_pylist())
    return tuple(sorted(names, key=int) if all(_is_number(name) for name in names) else names)


def _is_number(name: str) -> bool:
    """Whether a name is a whole number in decimal notation."""
    digits = name.removeprefix("-")
    return digits.isdecimal() and name == str(int(name))
