"""A build: the context of building a dataset once, and the interface of the two kinds of documents.

Each step of a build takes a `Build`. Workers get one too, so it can be pickled. The kind has no state, and is pickled
as the name of its class.
"""

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import pyarrow as pa

from slipway.assets.datasets.building import heap
from slipway.assets.datasets.building.build_log import BuildLog, quiet
from slipway.assets.datasets.building.scratch_dir import scratch_dir
from slipway.assets.datasets.building.step_cache import Record, StepCache
from slipway.recipes.dataset import DatasetRecipe

if TYPE_CHECKING:
    import duckdb

Reader = Callable[[str, BinaryIO], Iterator[Any]]
"""Yields the documents of a file, given its name and its open stream."""
RowOf = Callable[[str, Any], dict[str, Any]]
"""Returns a document's row in its segment, given the name of its file and the document."""


@dataclass(frozen=True)
class Build:
    """One build of one dataset, which is the only user of the scratch folder."""

    recipe: DatasetRecipe
    kind: "DocumentKind"
    durable: Path
    """The durable tier."""
    scratch: Path
    """The dataset's scratch folder, which is removed after the build."""
    log: BuildLog

    @property
    def folder(self) -> Path:
        """The dataset's own folder in the durable tier."""
        return self.durable / "datasets" / self.recipe.name

    def once(self, step: str, inputs: dict[str, Any], make: Callable[[], tuple[dict[str, Any], list[Path]]]) -> Record:
        """The step's result for these inputs: the recorded one, or the result and files that `make` returns."""
        return StepCache(self.durable, self.recipe.name).once(step, inputs, self.scratch, make)

    @property
    def for_workers(self) -> "Build":
        """A copy without the log, which belongs to the build's process."""
        return dataclasses.replace(self, log=quiet)


@contextlib.contextmanager
def begin_build(recipe: DatasetRecipe, kind: "DocumentKind", durable: Path, log: BuildLog) -> Iterator[Build]:
    """A build of the dataset; waits for another one of it. What it has freed is the system's again afterwards."""
    with heap.trimmed(), scratch_dir(durable, recipe.name) as scratch:
        yield Build(recipe, kind, durable, scratch, log)


class DocumentKind(ABC):
    """The parts of extraction and the documents table that differ between texts and images."""

    segment: ClassVar[pa.Schema]
    """The columns of a segment."""
    table: ClassVar[pa.Schema]
    """The columns of the documents table."""
    table_key: ClassVar[str]
    """The name of the version of the table's code in the step cache's key."""
    own_columns: ClassVar[str]
    """The columns that only this kind's documents table has, as SQL over a segment `d`."""
    identity: ClassVar[str]
    """The hash that decides a document's split, and that no change of the recipe changes, as SQL over a segment `d`."""

    @abstractmethod
    def reader(self, recipe: DatasetRecipe) -> Reader:
        """The reader of the recipe's files."""

    @abstractmethod
    def row_of(self, recipe: DatasetRecipe) -> RowOf:
        """The function that makes a document's row."""

    @abstractmethod
    def configuration(self, recipe: DatasetRecipe) -> list[Any]:
        """Everything besides its file that decides a document's row, as JSON."""

    @abstractmethod
    def evaluation_sets(self, recipe: DatasetRecipe) -> list[str]:
        """The BLAKE3 of each evaluation set that the documents are compared with."""

    @abstractmethod
    def kept_first(self, recipe: DatasetRecipe) -> str:
        """The order that decides which of several equal documents is kept, as SQL over the table `live`."""

    @abstractmethod
    def compare(self, build: Build, connection: "duckdb.DuckDBPyConnection", paths: list[str]) -> None:
        """Compare the documents, and mark those to leave out in the table `live`; `paths` are all segments."""
