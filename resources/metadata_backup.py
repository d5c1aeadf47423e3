"""Backup of the metadata: Dagster's and MLflow's SQLite databases and the recipes, as one verified folder on a tier.

SQLite's own backup copies a database consistently while others write to it; two databases may be moments apart, and
nothing here needs them to agree, as the truth lies in the training stores. A database server is backed up by its own
means. Restored into an empty home, the folder is that home's dagster/, mlflow.db and recipes/.
"""

import contextlib
import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from recipes.load import load
from resources.tracking import Tracking
from trainer import atomic, digest
from trainer.checkpoint.manifest import File, Manifest
from trainer.checkpoint.tiers import FolderTier, Source, Tier, fetch

LAYOUT = "metadata/1"
FOLDER = "metadata"
FIGURES = "figures.json"
SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Figures:
    """What a backup holds, counted; a restored one must hold no less."""

    runs: int
    experiments: int
    models: int
    recipes: int


@dataclass(frozen=True)
class Backup:
    folder: str
    manifest: str
    """SHA-256"""
    bytes: int
    figures: Figures


def back_up(dagster: Path, tracking: Tracking, recipes: Path, figures: Figures, tier: Tier, now: float) -> Backup:
    """Put a new backup on a tier. Raises tiers.Unavailable, and OSError or sqlite3.Error for what cannot be read."""
    folder = f"{FOLDER}/{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S.%fZ}"  # so fine that no two share a name
    with tempfile.TemporaryDirectory(prefix="metadata-") as scratch:
        root = Path(scratch)
        for database in sorted(dagster.rglob("*.db")):
            copy_database(database, root / "dagster" / database.relative_to(dagster))
        if tracking.uri.startswith(SQLITE):
            copy_database(Path(tracking.uri.removeprefix(SQLITE)), root / "mlflow.db")
        for recipe in recipes.glob("*/*.yaml"):
            copy = root / "recipes" / recipe.relative_to(recipes)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(recipe, copy)
        (root / FIGURES).write_bytes(atomic.readable_json(vars(figures)))
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        files = {str(path.relative_to(root)): File(path.stat().st_size, digest.of_file(path)) for path in paths}
        manifest = Manifest(LAYOUT, files)
        for name, file in files.items():
            tier.put(folder, name, FolderTier(root.parent).read(root.name, name), file)
        tier.finish(folder, manifest.encode())
    return Backup(folder, digest.sha256(manifest.encode()), manifest.bytes, figures)


def prune(tier: Tier, keep: int) -> list[str]:
    """Remove all backups but the newest `keep`; returns those that went. Raises tiers.Unavailable."""
    going = sorted(tier.folders(FOLDER))[:-keep]
    for folder in going:
        tier.remove(folder)
    return going


def restore(source: Source, folder: str, manifest: str, into: Path) -> Figures:
    """Restore a backup into the new folder `into` and count what it holds, through Dagster and MLflow themselves.

    Raises Damaged for bytes that are not what was backed up, and ValueError for a database that is not whole or
    holds less than was counted.
    """
    fetch(source, folder, manifest, into)
    for database in sorted(into.rglob("*.db")):
        _check(database)
    tracking = Tracking(uri=f"{SQLITE}{into / 'mlflow.db'}") if (into / "mlflow.db").exists() else None
    with dg.DagsterInstance.local_temp(str(into / "dagster")) as instance:
        found = count(instance, tracking, into / "recipes")
    expected = Figures(**json.loads((into / FIGURES).read_bytes()))
    for name, least in vars(expected).items():
        if getattr(found, name) < least:
            raise ValueError(f"{folder}: found {getattr(found, name)} {name}, expected {least} or more")
    return found


def count(instance: dg.DagsterInstance, tracking: Tracking | None, recipes: Path) -> Figures:
    """What there is."""
    experiments = models = 0
    if tracking is not None:
        client = tracking.client()
        experiments, models = len(client.search_experiments()), len(client.search_registered_models())
    read = load(recipes, {})
    return Figures(instance.get_runs_count(), experiments, models, sum(len(kind) for kind in vars(read).values()))


def copy_database(source: Path, target: Path) -> None:
    """A consistent copy of a SQLite database that may be in use. Raises sqlite3.Error."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with _opened(source) as original, _opened(target) as copy:
        original.backup(copy)


def _check(database: Path) -> None:
    with _opened(database) as connection:
        said = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    if said != ["ok"]:
        raise ValueError(f"{database.name}: SQLite finds {'; '.join(said)[:500]}")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=30)
    try:
        yield connection
    finally:
        connection.close()
