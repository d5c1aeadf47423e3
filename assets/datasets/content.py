"""Content: what the lane of a dataset does by what its documents are, texts or images."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import dagster as dg

from assets.datasets.extraction import Report
from assets.datasets.memo import Record
from recipes.dataset import Dataset
from trainer.shards import Manifest

Made = TypeVar("Made", bound=Manifest)


@dataclass(frozen=True)
class Outcome:
    """Of one check; a failure that is only a warning blocks nothing."""

    passed: bool
    metadata: dict[str, Any] = field(default_factory=dict)
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.ERROR


@dataclass(frozen=True)
class Content(Generic[Made]):
    """One kind of documents, whose snapshots are of the type `Made`."""

    versions: dict[str, str]
    """Of the code that makes `documents` and `snapshot`."""
    shards_of: str
    """What a shard is made of, in words."""
    checks: dict[str, str]
    """What must hold of a snapshot, by the name of the check."""
    read: Callable[[Path, str], Made]
    """A snapshot by the durable tier and its SHA-256."""
    make_snapshot: Callable[[Dataset, Path, Report], Record]
    outcomes: Callable[[Dataset, Made, Made | None, Path], list[Outcome]]
    """Of the checks, in their order: of a recipe's snapshot and its parent, read back from the durable tier."""
    of_documents: Callable[[Record, Path], dict[str, Any]]
    of_snapshot: Callable[[Record, Made, Path], dict[str, Any]]
