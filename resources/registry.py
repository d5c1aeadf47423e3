"""The model registry: checkpoints registered by reference, and which of them is the champion.

A version copies no bytes: its source is the checkpoint's folder, its tags are the whole lineage down to
the manifest's hash. Promotions are kept in a journal of our own, since an alias has no history; the alias
in MLflow follows the journal.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.tracking import Tracking
from trainer import journal

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

CANDIDATE, CHAMPION = "candidate", "champion"
MANIFEST_TAG = "slipway.checkpoint_manifest"
FOLDER_TAG = "slipway.checkpoint"
"""The checkpoint's folder, relative to the durable tier."""
SNAPSHOT_TAG = "slipway.snapshot"


@dataclass(frozen=True)
class Version:
    """A registered version and its lineage."""

    model: str
    number: str
    source: str
    tags: Mapping[str, str]


class Registry:
    """The registered models of one platform."""

    def __init__(self, tracking: Tracking, durable: Path) -> None:
        self._client = tracking.client()
        self._durable = durable

    def register(self, model: str, source: Path, run: str, tags: Mapping[str, str]) -> Version:
        """Register a checkpoint and call it the candidate. The same checkpoint is registered once."""
        version = self.find(model, tags[MANIFEST_TAG]) or self._create(model, source, run, tags)
        self._client.set_registered_model_alias(model, CANDIDATE, version.number)
        return version

    def aliased(self, model: str, alias: str) -> Version | None:
        """The version that `alias` points to, None when there is none."""
        from mlflow.exceptions import MlflowException

        try:
            return _version(self._client.get_model_version_by_alias(model, alias))
        except MlflowException as error:
            if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                return None
            raise

    def version(self, model: str, number: int) -> Version | None:
        """A version by its number, None when there is none."""
        found = self._client.search_model_versions(f"name = '{model}' and version_number = {number}")
        return _version(found[0]) if found else None

    def models(self) -> list[str]:
        """The names of the registered models, at most a hundred of them."""
        return sorted(model.name for model in self._client.search_registered_models(max_results=100))

    def promote(self, version: Version, evidence: Mapping[str, Any]) -> None:
        """Make a version the champion; the evidence goes on record first, once."""
        known = promotions(self._durable, version.model)
        if not known or known[-1]["version"] != version.number:
            self._record(version, evidence)
        self._client.set_registered_model_alias(version.model, CHAMPION, version.number)

    def _record(self, version: Version, evidence: Mapping[str, Any]) -> None:
        before = self.aliased(version.model, CHAMPION)
        event = {
            "event": "promoted",
            "t": time.time(),
            "model": version.model,
            "version": version.number,
            "before": before.number if before else None,
            "source": version.source,
            "tags": dict(version.tags),
            "evidence": dict(evidence),
        }
        with journal.Journal(promotions_path(self._durable, version.model)) as record:
            record.append(event)

    def find(self, model: str, manifest: str) -> Version | None:
        """The version of the checkpoint with this manifest, None when it is not registered."""
        found = self._client.search_model_versions(f"name = '{model}' and tags.`{MANIFEST_TAG}` = '{manifest}'")
        return _version(found[0]) if found else None

    def snapshots_in_use(self) -> set[str]:
        """The snapshots of all registered versions. Raises MlflowException when the registry cannot be asked."""
        return {version.tags[SNAPSHOT_TAG] for version in self.versions() if SNAPSHOT_TAG in version.tags}

    def versions(self) -> Iterator[Version]:
        """All versions of all models. Raises MlflowException when the registry cannot be asked."""
        token: str | None = None
        while token != "":
            page = self._client.search_model_versions(max_results=1000, page_token=token)
            yield from map(_version, page)
            token = page.token or ""

    def _create(self, model: str, source: Path, run: str, tags: Mapping[str, str]) -> Version:
        if not self._client.search_registered_models(f"name = '{model}'"):
            self._client.create_registered_model(model)
        return _version(self._client.create_model_version(model, _uri(source), run or None, tags=dict(tags)))


def promotions_path(durable: Path, model: str) -> Path:
    """The journal of a model's promotions."""
    return durable / "models" / model / "promotions.journal"


def promotions(durable: Path, model: str) -> list[journal.Event]:
    """Every promotion of a model, the last one being the champion's; read without MLflow."""
    return journal.read(promotions_path(durable, model)).events


def _uri(folder: Path) -> str:
    """Of a checkpoint's folder. A tracking server refuses file: for what is not among a run's artefacts."""
    return f"slipway:{folder.as_uri().removeprefix('file://')}"


def _version(version: "ModelVersion") -> Version:
    return Version(version.name, str(version.version), version.source, dict(version.tags))
