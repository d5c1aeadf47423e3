"""References: what refers to checkpoints, and to snapshots, wherever it is on record.

What is referred to is never removed, so that all is read or nothing is known: a training whose terms cannot be read may
start from any checkpoint. A registered model and a champion refer by the manifest and by the folder, a training by the
folder that it starts from; all hold for bytes on a tier whatever the records of their own training say.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from slipway.assets.sweeps.store import sweeps
from slipway.resources.mlflow.registry import FOLDER_TAG, MANIFEST_TAG, SNAPSHOT_TAG, Registry
from slipway.resources.promotions import promotion
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import Trainings, TrainingStore, all_trainings, all_trials
from slipway.trainer.base import listing
from slipway.trainer.base.paths import CHECKPOINTS
from slipway.trainer.record import files

Reasons = dict[str, list[str]]


@dataclass(frozen=True)
class References:
    """What refers to checkpoints, by their manifests and by their folders relative to a tier."""

    manifests: Reasons = field(default_factory=dict)
    folders: Reasons = field(default_factory=dict)

    def __call__(self, folder: str, manifest: str) -> list[str]:
        """What refers to the checkpoint in a folder, relative to its tier, whose manifest has this SHA-256."""
        by_folder = self.folders.get(folder, [])
        by_manifest = self.manifests.get(manifest, [])
        return [*by_manifest, *(why for why in by_folder if why not in by_manifest)]


class ReferenceReader:
    """Reads all references, as often as asked; terms that have not changed since are not read again."""

    def __init__(self, tiers: Tiers, registry: Registry | None) -> None:
        """Without a registry no model refers to anything: where there is none yet."""
        self._tiers = tiers
        self._registry = registry
        self._inits: dict[Path, tuple[tuple[int, int], str]] = {}

    def read(self) -> References:
        """All references there are now.

        Raises OSError and ValueError for records that cannot be read, and MlflowException when the registry is away.
        """
        references = References()
        for version in self._registry.versions() if self._registry else ():
            why = f"model {version.model}, version {version.number}"
            for folder in {folder_of(version.tags.get(FOLDER_TAG, "")), folder_of(version.source)} - {""}:
                references.folders.setdefault(folder, []).append(why)
            if manifest := version.tags.get(MANIFEST_TAG):
                references.manifests.setdefault(manifest, []).append(why)
        self._add_champions(references)
        for root in training_collections(self._tiers):
            for store in _folders(root):
                if init := self._init(store):
                    references.folders.setdefault(folder_of(init), []).append(f"training {store.id} starts from it")
        return references

    def _add_champions(self, references: References) -> None:
        """Champions by the log of promotions: in MLflow, anybody may delete a version, and a backup may lack it."""
        durable = self._tiers.durable_path
        for model in promotion.models(durable):
            for champion in promotion.champions(durable, model):
                why = f"model {model}, promoted as version {champion.version}"
                references.manifests.setdefault(champion.manifest, []).append(why)
                if folder := folder_of(champion.tags.get(FOLDER_TAG, "")):
                    references.folders.setdefault(folder, []).append(why)

    def _init(self, store: TrainingStore) -> str:
        """The folder that a training starts from; empty for one whose proposal was broken off: it never started."""
        # A copy of the terms may be all that is left of them.
        there = [
            store.folder / name
            for name in listing.names(store.folder)
            if Path(name).stem == Path(files.RUN_POLICY).stem
        ]
        if not there:
            return ""
        path = store.folder
        now = there[0].stat()
        version = (now.st_mtime_ns, now.st_ino)
        if self._inits.get(path, (None, ""))[0] != version:
            self._inits[path] = (version, store.run_policy().init)
        return self._inits[path][1]


def folder_of(location: str) -> str:
    """A checkpoint's folder relative to its tier, from its whole path or URL, however the tier is reached."""
    parts = PurePosixPath(location).parts
    positions = [number for number, part in enumerate(parts) if part == CHECKPOINTS]
    return "/".join(parts[positions[-1] :][:3]) if positions else location.rstrip("/")


def training_collections(tiers: Tiers) -> list[Trainings]:
    """The folder of all trainings, and those of each sweep's trials. Raises OSError for one that cannot be listed."""
    return [all_trainings(tiers), *all_trials(tiers).values()]


def stores(root: Trainings) -> Iterator[TrainingStore]:
    """All trainings ever proposed under one root. Raises OSError where they cannot be listed."""
    return (store for store in _folders(root) if files.SPECIFICATION in listing.names(store.folder))


def snapshots_in_use(tiers: Tiers) -> set[str]:
    """The snapshots of all that may go on: trainings that have not succeeded and were not let go, whether they should
    run or are stopped; sweeps that were not stopped for good, which may draw more trials, and trials that should run;
    and all with an open duty. And those of champions, which candidates are compared with.

    Raises OSError and ValueError where a record cannot be read.
    """
    own = all_trainings(tiers)
    of_sweeps = all_trials(tiers)
    used = {
        store.specification().snapshot for store in stores(own) if own.has_pending_work(store.id) or _may_go_on(store)
    }
    durable = tiers.durable_path
    for model in promotion.models(durable):
        used |= {champion.tags.get(SNAPSHOT_TAG, "") for champion in promotion.champions(durable, model)}
    for root in of_sweeps.values():
        for store in stores(root):
            if root.has_pending_work(store.id) or store.read().unfinished:
                used.add(store.specification().snapshot)
    for sweep in sweeps(tiers.durable_path / "sweeps"):
        state = sweep.state()
        if state is None or state.closed is None or state.closed.outcome != "stopped":
            used.add(str(sweep.specification()["snapshot"]))
    return used - {""}


def _may_go_on(store: TrainingStore) -> bool:
    facts = store.read()
    return facts.unfinished or not (facts.succeeded or facts.let_go)


def _folders(root: Trainings) -> Iterator[TrainingStore]:
    for id in listing.names_if_there(root.root):
        if listing.is_folder(root.root / id):
            yield root.store(id)
