"""The two kinds of datasets, texts and images: the parts of a dataset's assets that differ between them."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from slipway.assets.datasets.building.build import DocumentKind
from slipway.assets.datasets.building.build_log import BuildLog
from slipway.assets.datasets.building.step_cache import Record
from slipway.assets.datasets.documents import document_step
from slipway.assets.datasets.images import checks as image_checks
from slipway.assets.datasets.images import documents as image_documents
from slipway.assets.datasets.images import metadata as image_metadata
from slipway.assets.datasets.images import snapshot as image_snapshot
from slipway.assets.datasets.images import steps as image_steps
from slipway.assets.datasets.snapshots.outcomes import Outcome
from slipway.assets.datasets.texts import checks as text_checks
from slipway.assets.datasets.texts import documents as text_documents
from slipway.assets.datasets.texts import metadata as text_metadata
from slipway.assets.datasets.texts import snapshot as text_snapshot
from slipway.assets.datasets.texts import steps as text_steps
from slipway.recipes.dataset import DatasetRecipe
from slipway.trainer.data import images, shards
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.shards import SnapshotManifest, TextSnapshot

SnapshotOfKind = TypeVar("SnapshotOfKind", bound=SnapshotManifest)


class DatasetKind(ABC, Generic[SnapshotOfKind]):
    """The operations of a dataset's assets for texts or for images."""

    documents: ClassVar[DocumentKind]
    versions: ClassVar[dict[str, str]]
    """The versions of the code that makes `documents` and `snapshot`."""
    shards_of: ClassVar[str]
    """The content of a shard, in words."""
    checks: ClassVar[dict[str, str]]
    """The checks of a snapshot: their descriptions by name."""

    def make_documents(self, recipe: DatasetRecipe, durable: Path, log: BuildLog) -> Record:
        """The documents table of the present source. Raises as `document_step.make` does."""
        return document_step.make(recipe, self.documents, durable, log)

    @abstractmethod
    def documents_metadata(self, record: Record, durable: Path) -> dict[str, Any]:
        """The metadata of a documents table."""

    @abstractmethod
    def make_snapshot(self, recipe: DatasetRecipe, durable: Path, log: BuildLog) -> Record:
        """The snapshot of the last results of the earlier steps. Raises ValueError if one of them has not run."""

    @abstractmethod
    def up_to_date(self, recipe: DatasetRecipe, durable: Path) -> str | None:
        """The SHA-256 of the snapshot for the present recipe and source, if the dataset already points at it."""

    @abstractmethod
    def read(self, durable: Path, sha256: str) -> SnapshotOfKind:
        """Read a snapshot by its SHA-256 from the durable tier."""

    @abstractmethod
    def outcomes(
        self,
        recipe: DatasetRecipe,
        snapshot: SnapshotOfKind,
        parent: SnapshotOfKind | None,
        durable: Path,
        log: BuildLog,
    ) -> list[Outcome]:
        """The outcomes of the checks of a snapshot and its parent in the durable tier, in their order."""

    @abstractmethod
    def snapshot_metadata(self, record: Record, snapshot: SnapshotOfKind, durable: Path) -> dict[str, Any]:
        """The metadata of a snapshot."""


class Texts(DatasetKind[TextSnapshot]):
    """Texts, which a tokenizer encodes."""

    documents = text_documents.TEXT_DOCUMENTS
    versions: ClassVar[dict[str, str]] = {"documents": text_documents.VERSION, "snapshot": text_snapshot.VERSION}
    shards_of = "token"
    checks = text_checks.CHECKS

    def documents_metadata(self, record: Record, durable: Path) -> dict[str, Any]:
        return text_metadata.of_documents(record, durable)

    def make_snapshot(self, recipe: DatasetRecipe, durable: Path, log: BuildLog) -> Record:
        return text_steps.make_snapshot(recipe, durable, log)

    def up_to_date(self, recipe: DatasetRecipe, durable: Path) -> str | None:
        return text_steps.up_to_date(recipe, durable)

    def read(self, durable: Path, sha256: str) -> TextSnapshot:
        return shards.read_manifest(durable, sha256)

    def outcomes(
        self, recipe: DatasetRecipe, snapshot: TextSnapshot, parent: TextSnapshot | None, durable: Path, log: BuildLog
    ) -> list[Outcome]:
        return text_checks.outcomes(recipe, snapshot, parent, durable, log)

    def snapshot_metadata(self, record: Record, snapshot: TextSnapshot, durable: Path) -> dict[str, Any]:
        return text_metadata.of_snapshot(record, snapshot, durable)


class Images(DatasetKind[ImageSnapshot]):
    """Labelled images."""

    documents = image_documents.IMAGE_DOCUMENTS
    versions: ClassVar[dict[str, str]] = {"documents": image_documents.VERSION, "snapshot": image_snapshot.VERSION}
    shards_of = "image"
    checks = image_checks.CHECKS

    def documents_metadata(self, record: Record, durable: Path) -> dict[str, Any]:
        return image_metadata.of_documents(record, durable)

    def make_snapshot(self, recipe: DatasetRecipe, durable: Path, log: BuildLog) -> Record:
        return image_steps.make_snapshot(recipe, durable, log)

    def up_to_date(self, recipe: DatasetRecipe, durable: Path) -> str | None:
        return image_steps.up_to_date(recipe, durable)

    def read(self, durable: Path, sha256: str) -> ImageSnapshot:
        return images.read_manifest(durable, sha256)

    def outcomes(
        self, recipe: DatasetRecipe, snapshot: ImageSnapshot, parent: ImageSnapshot | None, durable: Path, log: BuildLog
    ) -> list[Outcome]:
        return image_checks.outcomes(recipe, snapshot, parent, durable, log)

    def snapshot_metadata(self, record: Record, snapshot: ImageSnapshot, durable: Path) -> dict[str, Any]:
        return image_metadata.of_snapshot(record, snapshot, durable)


def dataset_kind(recipe: DatasetRecipe) -> DatasetKind[Any]:
    """The kind of this recipe's dataset."""
    return Texts() if recipe.images is None else Images()
