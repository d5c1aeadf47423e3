"""Segments of texts: cleaned texts with the features for the comparison of documents, one row per document."""

import functools
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from slipway.assets.datasets.building.build import Reader, RowOf
from slipway.assets.datasets.cleaning import cleaner
from slipway.assets.datasets.cleaning.cleaner import Cleaner
from slipway.assets.datasets.cleaning.normalize import normalize
from slipway.assets.datasets.reading import encodings, pages, plain, readers
from slipway.assets.datasets.reading.document import About, Text
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.base import digest

EXCERPT = 1000
"""The characters to keep of a document that a rule removed, enough to understand why."""

SCHEMA = pa.schema(
    [
        pa.field("file", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("blake3", pa.string()),
        pa.field("identity", pa.string()),
        pa.field("whole", pa.string()),
        pa.field("language", pa.string()),
        *(pa.field(name, pa.string()) for name in About._fields),
        pa.field("removed", pa.string()),
        pa.field("masked", pa.int32(), nullable=False),
        pa.field("measures", pa.string()),
        pa.field("bands", pa.list_(pa.uint64())),
        pa.field("signature", pa.binary()),
        pa.field("fingerprints", pa.list_(pa.uint64())),
    ]
)


def reader(recipe: DatasetRecipe) -> Reader:
    """The reader of the recipe's files."""
    return functools.partial(readers.read, reading=recipe.reading)


def row_of(recipe: DatasetRecipe) -> RowOf:
    """The function that cleans a text and makes its row."""
    return functools.partial(_row, Cleaner(recipe.cleaning))


def _row(cleaning: Cleaner, file: str, document: Text) -> dict[str, Any]:
    """The row of a document. Its identity is the hash of its text before rules and masks, independent of the recipe."""
    cleaned = cleaning.clean(file, document.text, document.about)
    data = cleaned.text.encode()
    return {
        "file": file,
        "number": document.number,
        "text": cleaned.text if cleaned.removed is None else cleaned.text[:EXCERPT],
        "bytes": len(data),
        "blake3": digest.of_bytes(data),
        "identity": _identity(document.text),
        "whole": None if document.text_of_file is None else _identity(document.text_of_file),
        "language": cleaned.language,
        **{name: value or None for name, value in document.about._asdict().items()},
        "removed": cleaned.removed,
        "masked": sum(cleaned.masked.values()),
        "measures": json.dumps(cleaned.measures) if cleaned.measures else None,
        "bands": cleaned.bands,
        "signature": None if cleaned.signature is None else cleaned.signature.tobytes(),
        "fingerprints": cleaned.fingerprints,
    }


@functools.lru_cache(maxsize=2)  # the parts of a file come one after the other, each with the same whole
def _identity(text: str) -> str:
    return digest.of_bytes(normalize(text).encode())


def configuration(recipe: DatasetRecipe) -> list[Any]:
    """Everything besides its file that decides a text's row. Raises ValueError for a missing file."""
    cleaning = recipe.cleaning.content()
    if cleaning["decontamination"]:
        cleaning["decontamination"] = True  # the comparison, not a row, depends on the rest of the section
    cleaning.pop("kept_duplicate")  # nor on this
    versions = [cleaner.VERSION, encodings.VERSION, plain.VERSION, pages.VERSION]
    return [*versions, recipe.reading.content(), cleaning, cleaner.files_of(recipe.cleaning)]


class TextPlace(NamedTuple):
    """The place of a document, its file and its number there, and the BLAKE3 of its cleaned text."""

    file: str
    number: int
    blake3: str


def texts(segment: Path, selected: Iterable[TextPlace]) -> Iterator[tuple[str, str]]:
    """The BLAKE3 and text of the wanted documents of a segment, a row group at a time.

    They are wanted in the order of files' names and numbers, which is that of a segment: so one at a time is looked
    for, and memory does not grow with their number.
    """
    following = iter(selected)
    next_one = next(following, None)
    with pq.ParquetFile(segment, pre_buffer=False) as file:
        for group in range(file.num_row_groups):
            if next_one is None:
                return
            rows = file.read_row_group(group, columns=["file", "number", "text"], use_threads=False)
            file_numbers = zip(rows["file"].to_pylist(), rows["number"].to_pylist(), strict=True)
            for row, file_number in enumerate(file_numbers):
                if next_one is not None and file_number == next_one[:2]:
                    yield next_one.blake3, rows["text"][row].as_py()
                    next_one = next(following, None)
    assert next_one is None, "a kept document is in the segment that the index names"
