"""The model registry: checkpoints registered by reference.

A version copies no bytes: its source is the checkpoint's folder, and its tags are the whole lineage down to the
manifest's hash. `slipway.resources.promotions.promotion` decides which version is the champion, and who may change it.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.resources.errors import Unavailable
from slipway.resources.mlflow import filters
from slipway.resources.mlflow.tracking import Tracking
from slipway.trainer.base import lock

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

WRITER_SECONDS = 120.0
"""How long a writer waits for another one, which makes a few requests to MLflow with time-outs of their own."""
CANDIDATE = "candidate"
CHAMPION = "champion"
MANIFEST_TAG = "slipway.checkpoint_manifest"
FOLDER_TAG = "slipway.checkpoint"
"""The checkpoint's folder, relative to the durable tier."""
TRAINING_TAG = "slipway.training"
SNAPSHOT_TAG = "slipway.snapshot"


@dataclass(frozen=True)
class Version:
    """A registered version and its lineage."""

    model: str
    number: str
    source: str
    tags: Mapping[str, str]

    @property
    def manifest(self) -> str:
        """The SHA-256 of its checkpoint's manifest; for a version that is not one of our checkpoints, its number."""
        return self.tags.get(MANIFEST_TAG) or f"version {self.number}"

    @property
    def training(self) -> str:
        """Its training; "" for a version that is not one of our checkpoints."""
        return self.tags.get(TRAINING_TAG, "")


class Registry:
    """The registered models of one platform."""

    def __init__(self, tracking: Tracking, durable: Path) -> None:
        self._client = tracking.client()
        self.promoters = frozenset(tracking.promoters)
        self._durable = durable

    def register(self, model: str, source: Path, run: str, tags: Mapping[str, str]) -> Version:
        """Register a checkpoint and make it the candidate. The same checkpoint is registered only once."""
        with one_writer(self._durable, model):
            version = self.find(model, tags[MANIFEST_TAG]) or self._create(model, source, run, tags)
            self.point(model, CANDIDATE, version.number)
        return version

    def aliased(self, model: str, alias: str) -> Version | None:
        """The version to which `alias` points, or None."""
        from mlflow.exceptions import MlflowException

        try:
            return _version(self._client.get_model_version_by_alias(model, alias))
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise

    def version(self, model: str, number: int) -> Version | None:
        """A version by its number, or None."""
        versions = self._client.search_model_versions(f"{filters.equal('name', model)} and version_number = {number}")
        return _version(versions[0]) if versions else None

    def numbers(self, model: str) -> list[int]:
        """The numbers of the versions of a model."""
        query = filters.equal("name", model)
        pages = _pages(lambda token: self._client.search_model_versions(query, max_results=1000, page_token=token))
        return sorted(int(model_version.version) for model_version in pages)

    def models(self) -> list[str]:
        """The names of the registered models."""
        pages = _pages(lambda token: self._client.search_registered_models(max_results=1000, page_token=token))
        return sorted(model.name for model in pages)

    def point(self, model: str, alias: str, number: str) -> None:
        """Point an alias to a version. Only `slipway.resources.promotions.promotion` moves the champion's alias."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.set_registered_model_alias(model, alias, number)
        except MlflowException as error:
            if error.error_code != "BAD_REQUEST":
                raise
            # MLflow inserts a new alias. Of two simultaneous inserts one fails; the second attempt is an update.
            self._client.set_registered_model_alias(model, alias, number)

    def unpoint(self, model: str, alias: str) -> None:
        """Remove an alias."""
        self._client.delete_registered_model_alias(model, alias)

    def find(self, model: str, manifest: str) -> Version | None:
        """The version of the checkpoint with this manifest, or None."""
        which = f"{filters.equal('name', model)} and {filters.equal(f'tags.`{MANIFEST_TAG}`', manifest)}"
        versions = self._client.search_model_versions(which)
        return _version(versions[0]) if versions else None

    def snapshots_in_use(self) -> set[str]:
        """The snapshots of all registered versions. Raises MlflowException if the registry does not answer."""
        return {version.tags[SNAPSHOT_TAG] for version in self.versions() if SNAPSHOT_TAG in version.tags}

    def versions(self) -> Iterator[Version]:
        """All versions of all models. Raises MlflowException if the registry does not answer."""
        pages = _pages(lambda token: self._client.search_model_versions(max_results=1000, page_token=token))
        yield from map(_version, pages)

    def _create(self, model: str, source: Path, run: str, tags: Mapping[str, str]) -> Version:
        if not self._client.search_registered_models(filters.equal("name", model)):
            self._client.create_registered_model(model)
        return _version(self._client.create_model_version(model, _uri(source), run or None, tags=dict(tags)))


@contextlib.contextmanager
def one_writer(durable: Path, model: str) -> Iterator[None]:
    """A lock for changing a registered model. Raises Unavailable if another process holds it for too long."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lock.within(durable / "models" / model, WRITER_SECONDS))
        except lock.LockHeld as error:
            problem = f"another process has been changing it for {WRITER_SECONDS:.0f} s: {error}"
            raise Unavailable(f"model {model}: {problem}") from None
        yield


def _uri(folder: Path) -> str:
    """The URI of a checkpoint's folder. A tracking server rejects `file:` outside a run's artefacts."""
    return f"slipway:{folder.as_uri().removeprefix('file://')}"


def _pages(ask: Callable[[str | None], Any]) -> Iterator[Any]:
    """The results of all pages of `ask`, a search in MLflow that takes a page token."""
    token: str | None = None
    while token != "":
        page = ask(token)
        yield from page
        token = page.token or ""


def _version(version: "ModelVersion") -> Version:
    return Version(version.name, str(version.version), version.source, dict(version.tags))
