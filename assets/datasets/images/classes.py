"""The classes of a documents table's kept images: their names in order, and how many images each has."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.documents.document_table import SPLITS


@dataclass(frozen=True)
class ClassCounts:
    """The kept images of each class by split."""

    by_split: dict[str, dict[str, int]]

    @property
    def totals(self) -> list[tuple[str, int]]:
        """The images of each class in both splits together."""
        return sorted(sum((Counter(counts) for counts in self.by_split.values()), Counter()).items())

    def lacking(self) -> list[str]:
        """The classes that one of the splits has no image of."""
        return [name for name, _ in self.totals if not all(counts.get(name) for counts in self.by_split.values())]


def count_classes(table: Path) -> ClassCounts:
    """The kept images of each class in a documents table."""
    found = pq.read_table(table, columns=["split", "label"]).group_by(["split", "label"]).aggregate([([], "count_all")])
    by_split: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for row in found.to_pylist():
        if row["split"] is not None:
            by_split[row["split"]][row["label"]] = row["count_all"]
    return ClassCounts(by_split)


def class_names(table: Path) -> tuple[str, ...]:
    """The classes of a table's kept images: in numerical order if all are whole numbers, else in alphabetical order."""
    columns = pq.read_table(table, columns=["label"], filters=pa.compute.field("removed").is_null())
    names = sorted(columns["label"].unique().to_pylist())
    return tuple(sorted(names, key=int) if all(_is_number(name) for name in names) else names)


def _is_number(name: str) -> bool:
    """Whether a name is a whole number as it is written in decimals."""
    digits = name.removeprefix("-")
    return digits.isdecimal() and name == str(int(name))
