"""Metadata backup: the databases, the recipes and a few records, as one verified folder on a tier.

The backup functions of SQLite and PostgreSQL copy a database consistently while other processes write to it. Two
databases may be moments apart; this is harmless, since the training stores are the source of truth. A restore into an
empty home creates its dagster/, mlflow.db, settings and recipes/; a cluster's backup holds dumps instead.
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
"""The folder of a backup that holds records of the durable tier, under their names on that tier."""
SETTINGS = (cost_settings.FILE, notification_settings.FILE)
"""The settings files of a home. The file with the addresses of notifications is not copied, since it holds secrets."""
Records = Iterable[tuple[str, Path]]
"""Files of the durable tier that nothing else could recreate: their names on the tier, and their paths."""
ABANDONED_SECONDS = DAY
"""The age at which an unfinished backup counts as left behind by a killed process."""
COUNTED = {"runs": "dagster", "experiments": "mlflow", "registered_models": "mlflow"}
"""The tables whose rows `Figures` counts on a server, each with its database."""


@dataclass(frozen=True)
class Figures:
    """The number of records in a backup. A restored backup must hold at least as many."""

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
    """Write a new backup to a tier, with these records of the durable tier. Raises tiers.Unavailable, and OSError or
    sqlite3.Error if something cannot be read."""

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
    """As `back_up`, for the databases of PostgreSQL servers. Raises Unavailable if one does not answer."""

    def copy(root: Path) -> None:
        for service in postgresql.services():
            postgresql.dump(service, root)

    return _back_up(copy, recipes, figures, tier, now, records)


def _back_up(
    copy: Callable[[Path], None], recipes: Path, figures: Figures, tier: Tier, now: float, records: Records
) -> Backup:
    folder = f"{FOLDER}/{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S.%fZ}"  # microseconds keep the names distinct
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
    """The path, after creating its parent folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _recipes(folder: Path) -> dict[str, bytes]:
    """Each readable recipe, valid or not, by its path in the folder.

    An invalid recipe must not prevent the backup of the databases, and the code that a recipe names may lie elsewhere.
    """
    return {name: texts.encoded(text) for name, text in texts.read(folder).items() if isinstance(text, str)}


def _remove_abandoned(tier: Tier, now: float) -> None:
    """Remove what killed backups left behind; nothing else would ever remove it."""
    for folder in tier.unfinished(FOLDER):
        with contextlib.suppress(ValueError):  # the folder is not a backup
            if made_at(folder) < now - ABANDONED_SECONDS:
                tier.remove(folder)


@contextlib.contextmanager
def _removing(tier: Tier, folder: str) -> Iterator[None]:
    """Remove a backup that fails. On a full tier, each nightly attempt would otherwise use up more space."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(TierUnavailable):
            tier.remove(folder)
        raise


def _databases(dagster: Path) -> list[Path]:
    """Dagster's databases. The folder `storage` is skipped: it has no database, but two files per step of each run."""
    databases: list[Path] = []
    for folder, below, names in os.walk(dagster):
        if Path(folder) == dagster:
            below[:] = [name for name in below if name != "storage"]
        databases += [Path(folder, name) for name in names if name.endswith(".db")]
    return sorted(databases)


def prune(tier: Tier, keep: int, newest_backup: str = "") -> list[str]:
    """Remove all backups except the newest `keep` and `newest_backup`; returns the removed ones.

    The backup just made, `newest_backup`, may look older than the others if the clock was set back. Raises
    tiers.Unavailable.
    """
    going = [folder for folder in sorted(tier.folders(FOLDER))[:-keep] if folder != newest_backup]
    for folder in going:
        tier.remove(folder)
    return going


def newest(tier: Tier) -> str:
    """The folder of the newest backup. Raises ValueError if there is none, and tiers.Unavailable."""
    backups = sorted(tier.folders(FOLDER))
    if not backups:
        raise ValueError(f"{tier}/{FOLDER}: found no backup, expected one; slipway backup makes one")
    return backups[-1]


def made_at(folder: str) -> float:
    """When a backup was made, from its name, in seconds since the epoch. Raises ValueError for any other name."""
    try:
        return datetime.strptime(folder, f"{FOLDER}/%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(
            f"backup {folder}: found another name, expected a folder as slipway backup prints it, "
            f"such as {FOLDER}/20260131T060000.000000Z"
        ) from None


@contextlib.contextmanager
def fetched(tier: Tier, folder: str, name: str, parent: Path) -> Iterator[tuple[Path, Figures]]:
    """A verified copy of a backup, and its counts, in a scratch folder called `name` in `parent`.

    The files are verified against the manifest; the manifest itself is not, since nobody stored its hash. Raises as
    `restore` does.
    """
    made_at(folder)
    with scratch.folder(name, parent) as scratch_folder:
        manifest = digest.sha256(b"".join(tier.read(folder, MANIFEST)))
        yield scratch_folder / "fetched", restore(tier, folder, manifest, scratch_folder / "fetched")


def restore(source: TierSource, folder: str, manifest: str, into: Path) -> Figures:
    """Restore a backup into the new folder `into`, and count its records with Dagster and MLflow.

    Raises Damaged if bytes differ from what was backed up, and ValueError if a database is damaged or holds fewer
    records than were backed up, or if a newer Slipway made the backup.
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
    """Raises ValueError for a backup of a newer Slipway, whose databases may have unknown tables."""
    mark = state.state_of(into)
    if mark is not None and mark.state > state.STATE:
        raise ValueError(
            f"{folder}: found a backup of state {mark.state}, which Slipway {mark.version} made, expected "
            f"{state.STATE} or older: this is Slipway {state.RELEASES[state.STATE]}; restore it with {mark.version}"
        )


def _counted_files(into: Path) -> Figures:
    """The counts of a backup's SQLite databases. Raises ValueError for a damaged database."""
    for path in sorted(into.rglob("*.db")):
        _check(path)
    tracking = Tracking(uri=f"{database.URI}{into / 'mlflow.db'}") if (into / "mlflow.db").exists() else None
    with dg.DagsterInstance.local_temp(str(into / "dagster")) as instance:
        return count(instance, tracking, into / "recipes")


def _counted_dumps(into: Path) -> Figures:
    """The counts of a backup's dumps, read completely, and restored into the drill database if there is one.

    Raises ValueError for an incomplete dump.
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
    """Count the records of Dagster and MLflow, and the recipes. Creates no tracking database if there is none."""
    experiments = 0
    models = 0
    if tracking is not None and tracking.is_there:
        client = tracking.client()
        experiments = len(client.search_experiments())
        models = len(client.search_registered_models())
    return Figures(instance.get_runs_count(), experiments, models, len(_recipes(recipes)))


def _described(path: Path) -> CheckpointFile:
    measured = verify.measure(path)
    return CheckpointFile(measured.bytes, measured.blake3)


def _check(path: Path) -> None:
    with sqlite.opened(path) as connection:
        findings = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    if findings != ["ok"]:
        raise ValueError(f"{path.name}: SQLite finds {'; '.join(findings)[:500]}")
