"""A kind of documents: all that extraction and the documents table do differently for texts and for images.

The functions are called in worker processes too, so each of them is defined at the top of a module.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from slipway.assets.datasets.building.build_log import BuildLog
from slipway.recipes.dataset import DatasetRecipe

Reader = Callable[[str, BinaryIO], Iterator[Any]]
"""Gives the documents of a file from its name and its open stream."""
RowOf = Callable[[str, Any], dict[str, Any]]
"""Gives the row of a document in its segment from the name of its file and the document."""


@dataclass(frozen=True)
class DocumentKind:
    """Texts or images."""

    segment: pa.Schema
    """The columns of a segment."""
    reader: Callable[[DatasetRecipe], Reader]
    row_of: Callable[[DatasetRecipe], RowOf]
    configuration: Callable[[DatasetRecipe], list[Any]]
    """Everything that decides a document's row besides its file, as JSON has it."""
    table: pa.Schema
    """The columns of the documents table."""
    own_columns: str
    """The columns that only this kind's documents table has, as SQL over a segment `d`."""
    identity: str
    """The hash that decides a document's split, and that no change of the recipe changes, as SQL over a segment `d`."""
    kept_first: Callable[[DatasetRecipe], str]
    """The order in which one of equal documents is chosen to be kept, as SQL over the table `live`."""
    table_key: str
    """The version of the table's code, as the memo's key names it."""
    compare: Callable[[duckdb.DuckDBPyConnection, DatasetRecipe, list[str], Path, Path, BuildLog], None]
    """Marks in the table `live` the documents that are left out after a comparison with others.

    It gets the connection, the recipe, the paths of the segments, the durable tier and the dataset's workshop and the
    build's log.
    """
    evaluation_sets: Callable[[DatasetRecipe], list[str]]
    """The BLAKE3 of each evaluation set that the documents are compared with."""
