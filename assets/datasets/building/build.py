"""A build: what is fixed while a dataset is built once, and what its kind, texts or images, does differently.

Each step of a build takes a `Build`. Workers get one too, so it can be pickled, and so can the kind: an instance of it
has no state, and travels as the name of its class.
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
"""Gives the documents of a file from its name and its open stream."""
RowOf = Callable[[str, Any], dict[str, Any]]
"""Gives the row of a document in its segment from the name of its file and the document."""


@dataclass(frozen=True)
class Build:
    """One build of one dataset, which has the scratch folder alone."""

    recipe: DatasetRecipe
    kind: "DocumentKind"
    durable: Path
    """The durable tier."""
    scratch: Path
    """The dataset's scratch folder, which is removed when the build has ended."""
    log: BuildLog

    @property
    def folder(self) -> Path:
        """The dataset's own folder in the durable tier."""
        return self.durable / "datasets" / self.recipe.name

    def once(self, step: str, inputs: dict[str, Any], make: Callable[[], tuple[dict[str, Any], list[Path]]]) -> Record:
        """The step's result for these inputs: the recorded one, or the result and the files that `make` gives."""
        return StepCache(self.durable, self.recipe.name).once(step, inputs, self.scratch, make)

    @property
    def for_workers(self) -> "Build":
        """The same without the log, which belongs to the process of the build."""
        return dataclasses.replace(self, log=quiet)


@contextlib.contextmanager
def begin_build(recipe: DatasetRecipe, kind: "DocumentKind", durable: Path, log: BuildLog) -> Iterator[Build]:
    """A build of the dataset; waits for another one of it. What it has freed is the system's again afterwards."""
    with heap.trimmed(), scratch_dir(durable, recipe.name) as scratch:
        yield Build(recipe, kind, durable, scratch, log)


class DocumentKind(ABC):
    """What extraction and the documents table do differently for texts and for images."""

    segment: ClassVar[pa.Schema]
    """The columns of a segment."""
    table: ClassVar[pa.Schema]
    """The columns of the documents table."""
    table_key: ClassVar[str]
    """The version of the table's code, as the step cache's key names it."""
    own_columns: ClassVar[str]
    """The columns that only this kind's documents table has, as SQL over a segment `d`."""
    identity: ClassVar[str]
    """The hash that decides a document's split, and that no change of the recipe changes, as SQL over a segment `d`."""

    @abstractmethod
    def reader(self, recipe: DatasetRecipe) -> Reader:
        """Gives the reader of the recipe's files."""

    @abstractmethod
    def row_of(self, recipe: DatasetRecipe) -> RowOf:
        """Gives the function that makes a document's row."""

    @abstractmethod
    def configuration(self, recipe: DatasetRecipe) -> list[Any]:
        """Everything that decides a document's row besides its file, as JSON has it."""

    @abstractmethod
    def evaluation_sets(self, recipe: DatasetRecipe) -> list[str]:
        """The BLAKE3 of each evaluation set that the documents are compared with."""

    @abstractmethod
    def kept_first(self, recipe: DatasetRecipe) -> str:
        """The order in which one of equal documents is chosen to be kept, as SQL over the table `live`."""

    @abstractmethod
    def compare(self, build: Build, connection: "duckdb.DuckDBPyConnection", paths: list[str]) -> None:
        """Mark in the table `live` the documents that are left out after a comparison with others.

        `paths` are those of all segments.
        """
