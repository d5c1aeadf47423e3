"""Backup of the metadata: the databases, the recipes and a few records, as one verified folder on a tier.

SQLite's own backup copies a database consistently while other processes write to it, and so does PostgreSQL's. Two
databases may be moments apart: nothing needs them to agree, because the truth lies in the training stores. A restore
into an empty home makes that home's dagster/, mlflow.db, settings and recipes/; on a cluster, there are dumps instead.
"""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg

from slipway.recipes import texts
from slipway.resources import cost_settings, postgresql, sqlite, state
from slipway.resources.mlflow import database
from slipway.resources.mlflow.tracking import Tracking
from slipway.resources.notify import settings as notification_settings
from slipway.trainer.base import atomic, digest, parsing, regular_file, scratch, verify
from slipway.trainer.base.units import DAY
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointFile, CheckpointManifest
from slipway.trainer.checkpoint.tiers.copying import fetch
from slipway.trainer.checkpoint.tiers.folder_tier import FolderTier
from slipway.trainer.checkpoint.tiers.tier import Tier, TierSource, TierUnavailable

LAYOUT = "metadata/1"
FOLDER = "metadata"
FIGURES = "figures.json"
DURABLE = "durable"
"""The folder of a backup with records of the durable tier, under the names that they have there."""
SETTINGS = (cost_settings.FILE, notification_settings.FILE)
"""The settings in a home. The addresses of notifications hold secrets: their file stays where it is."""
Records = Iterable[tuple[str, Path]]
"""Files of the durable tier that nothing else could make again: their names there, and their paths."""
ABANDONED_SECONDS = DAY
"""After so long, a backup that is not finished is one whose process was killed."""
COUNTED = {"runs": "dagster", "experiments": "mlflow", "registered_models": "mlflow"}
"""By table, the database that has it: what `Figures` counts of a server."""


@dataclass(frozen=True)
class Figures:
    """What a backup holds, counted; a restored backup must hold no less."""

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


def back_up(
    dagster: Path, tracking: Tracking, recipes: Path, figures: Figures, tier: Tier, now: float, records: Records = ()
) -> Backup:
    """Put a new backup on a tier, with these records of the durable tier. Raises tiers.Unavailable, and OSError or
    sqlite3.Error for what cannot be read."""

    def copy(root: Path) -> None:
        for path in _databases(dagster):
            sqlite.copy(path, root / "dagster" / path.relative_to(dagster))
        if tracking.database is not None and tracking.is_there:
            sqlite.copy(tracking.database, root / "mlflow.db")
        for settings in (dagster.parent / name for name in SETTINGS):
            if settings.exists():
                shutil.copyfile(settings, root / settings.name)

    return _back_up(copy, recipes, figures, tier, now, records)


def back_up_servers(recipes: Path, figures: Figures, tier: Tier, now: float, records: Records = ()) -> Backup:
    """As `back_up`, of the databases of servers. Raises Unavailable when one does not answer."""

    def copy(root: Path) -> None:
        for service in postgresql.services():
            postgresql.dump(service, root)

    return _back_up(copy, recipes, figures, tier, now, records)


def _back_up(
    copy: Callable[[Path], None], recipes: Path, figures: Figures, tier: Tier, now: float, records: Records
) -> Backup:
    folder = f"{FOLDER}/{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S.%fZ}"  # so fine that no two share a name
    _remove_abandoned(tier, now)
    with scratch.folder("slipway-backup") as root:
        copy(root)
        for name, text in _recipes(recipes).items():
            _with_folder(root / "recipes" / name).write_bytes(text)
        for name, path in records:
            shutil.copyfile(path, _with_folder(root / DURABLE / name))
        (root / FIGURES).write_bytes(atomic.readable_json(vars(figures)))
        state.write(root, state.STATE)
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        files = {str(path.relative_to(root)): _described(path) for path in paths}
        manifest = CheckpointManifest(LAYOUT, files)
        with _removing(tier, folder):
            for name, file in files.items():
                tier.put(folder, name, FolderTier(root.parent).read(root.name, name), file)
            tier.finish(folder, manifest.encode())
    return Backup(folder, digest.sha256(manifest.encode()), manifest.bytes, figures)


def _with_folder(path: Path) -> Path:
    """The path, whose folder is there now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _recipes(folder: Path) -> dict[str, bytes]:
    """Each recipe that can be read, whatever it says, by its path in the folder.

    Whether it is right is another question: one that is wrong must not cost the databases their backup, and code that
    a recipe names may lie elsewhere.
    """
    return {name: texts.encoded(text) for name, text in texts.read(folder).items() if isinstance(text, str)}


def _remove_abandoned(tier: Tier, now: float) -> None:
    """Remove what backups that were killed have left: nobody sees it, and it would stay for ever."""
    for folder in tier.unfinished(FOLDER):
        with contextlib.suppress(ValueError):  # another name is no backup's
            if made_at(folder) < now - ABANDONED_SECONDS:
                tier.remove(folder)


@contextlib.contextmanager
def _removing(tier: Tier, folder: str) -> Iterator[None]:
    """Remove a backup that cannot be finished: on a full tier, each night's attempt would take what is left."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(TierUnavailable):
            tier.remove(folder)
        raise


def _databases(dagster: Path) -> list[Path]:
    """Dagster's databases. Its folder `storage` has none, and two files for each step of each run."""
    databases: list[Path] = []
    for folder, below, names in os.walk(dagster):
        if Path(folder) == dagster:
            below[:] = [name for name in below if name != "storage"]
        databases += [Path(folder, name) for name in names if name.endswith(".db")]
    return sorted(databases)


def prune(tier: Tier, keep: int, newest_backup: str = "") -> list[str]:
    """Remove all backups but the newest `keep`, and never `newest_backup`, just made; returns those that went.

    By a clock that was set back, that one is older than the others. Raises tiers.Unavailable.
    """
    going = [folder for folder in sorted(tier.folders(FOLDER))[:-keep] if folder != newest_backup]
    for folder in going:
        tier.remove(folder)
    return going


def newest(tier: Tier) -> str:
    """The folder of the newest backup. Raises ValueError when there is none, and tiers.Unavailable."""
    backups = sorted(tier.folders(FOLDER))
    if not backups:
        raise ValueError(f"{tier}/{FOLDER}: found no backup, expected one; slipway backup makes one")
    return backups[-1]


def made_at(folder: str) -> float:
    """When a backup was made, by its name; in seconds since the epoch. Raises ValueError for another name."""
    try:
        return datetime.strptime(folder, f"{FOLDER}/%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(
            f"backup {folder}: found no name of one, expected a folder as slipway backup prints it, "
            f"such as {FOLDER}/20260131T060000.000000Z"
        ) from None


@contextlib.contextmanager
def fetched(tier: Tier, folder: str, name: str, parent: Path) -> Iterator[tuple[Path, Figures]]:
    """A verified copy of a backup, and what it holds; it lies alone in a scratch folder of this name in `parent`.

    Its files are held to its manifest; of that nobody has kept the hash. Raises as `restore` does.
    """
    made_at(folder)
    with scratch.folder(name, parent) as scratch_folder:
        manifest = digest.sha256(b"".join(tier.read(folder, MANIFEST)))
        yield scratch_folder / "fetched", restore(tier, folder, manifest, scratch_folder / "fetched")


def restore(source: TierSource, folder: str, manifest: str, into: Path) -> Figures:
    """Restore a backup into the new folder `into` and count what it holds, through Dagster and MLflow themselves.

    Raises Damaged for bytes that are not what was backed up, and ValueError for a database that is not whole or
    holds less than was counted, and for a backup that a newer Slipway has made.
    """
    fetch(source, folder, manifest, into)
    _refuse_newer(into, folder)
    counted_rows = _counted_dumps(into) if postgresql.dumps(into) else _counted_files(into)
    expected = Figures(**parsing.value(regular_file.read(into / FIGURES)))
    for name, least in vars(expected).items():
        if getattr(counted_rows, name) < least:
            raise ValueError(f"{folder}: found {getattr(counted_rows, name)} {name}, expected {least} or more")
    return counted_rows


def _refuse_newer(into: Path, folder: str) -> None:
    """Its databases may have tables that this version does not know."""
    mark = state.state_of(into)
    if mark is not None and mark.state > state.STATE:
        raise ValueError(
            f"{folder}: found a backup of state {mark.state}, which Slipway {mark.version} made, expected "
            f"{state.STATE} or older: this is Slipway {state.RELEASES[state.STATE]}; restore it with {mark.version}"
        )


def _counted_files(into: Path) -> Figures:
    """What the SQLite databases of a backup hold. Raises ValueError for one that is not whole."""
    for path in sorted(into.rglob("*.db")):
        _check(path)
    tracking = Tracking(uri=f"{database.URI}{into / 'mlflow.db'}") if (into / "mlflow.db").exists() else None
    with dg.DagsterInstance.local_temp(str(into / "dagster")) as instance:
        return count(instance, tracking, into / "recipes")


def _counted_dumps(into: Path) -> Figures:
    """What the dumps of a backup hold, read to their ends; put into the database for drills where there is one.

    Raises ValueError for a dump that is not whole.
    """
    dumps = postgresql.dumps(into)
    rows = {
        table: postgresql.rows(dumps[service], table) if service in dumps else 0 for table, service in COUNTED.items()
    }
    if postgresql.DRILL in postgresql.sections():
        for service, dump in dumps.items():
            postgresql.restore(postgresql.DRILL, dump)
            for table in (table for table, of in COUNTED.items() if of == service):
                rows[table] = postgresql.rows_of(postgresql.DRILL, table)
    return Figures(rows["runs"], rows["experiments"], rows["registered_models"], len(_recipes(into / "recipes")))


def count(instance: dg.DagsterInstance, tracking: Tracking | None, recipes: Path) -> Figures:
    """Count what Dagster and MLflow hold, and the recipes. Nothing is made where nothing was tracked."""
    experiments = models = 0
    if tracking is not None and tracking.is_there:
        client = tracking.client()
        experiments, models = len(client.search_experiments()), len(client.search_registered_models())
    return Figures(instance.get_runs_count(), experiments, models, len(_recipes(recipes)))


def _described(path: Path) -> CheckpointFile:
    measured = verify.measure(path)
    return CheckpointFile(measured.bytes, measured.blake3)


def _check(path: Path) -> None:
    with sqlite.opened(path) as connection:
        findings = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    if findings != ["ok"]:
        raise ValueError(f"{path.name}: SQLite finds {'; '.join(findings)[:500]}")
