"""DatasetKind: what the lane of a dataset does differently for texts and for images."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from slipway.assets.datasets.building.build_log import BuildLog
from slipway.assets.datasets.building.memo import Record
from slipway.assets.datasets.snapshots.outcomes import Outcome
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data.shards import SnapshotManifest

Made = TypeVar("Made", bound=SnapshotManifest)


@dataclass(frozen=True)
class DatasetKind(Generic[Made]):
    """Texts or images, whose snapshots are of the type `Made`."""

    versions: dict[str, str]
    """The versions of the code that makes `documents` and `snapshot`."""
    shards_of: str
    """What a shard is made of, in words."""
    table: pa.Schema
    """The columns of the documents table."""
    checks: dict[str, str]
    """What must hold of a snapshot, by the name of the check."""
    read: Callable[[Path, str], Made]
    """Gives the snapshot of a SHA-256 in the durable tier."""
    make_documents: Callable[[DatasetRecipe, Path, BuildLog], Record]
    make_snapshot: Callable[[DatasetRecipe, Path, BuildLog], Record]
    up_to_date: Callable[[DatasetRecipe, Path], str | None]
    """Gives the SHA-256 of the snapshot that recipe and source give now, if the dataset points at it already."""
    outcomes: Callable[[DatasetRecipe, Made, Made | None, Path, BuildLog], list[Outcome]]
    """Gives the outcomes of the checks, in their order, of a snapshot and its parent as the durable tier has them, and
    tells the log how far it is."""
    of_documents: Callable[[Record, Path], dict[str, Any]]
    """Gives the metadata of a documents table."""
    of_snapshot: Callable[[Record, Made, Path], dict[str, Any]]
    """Gives the metadata of a snapshot."""
