"""Metadata restore: puts Dagster's and MLflow's databases back from a backup, and has what came since shown again.

The truth lies in the training stores; the databases only show it. A restored one lacks what was shown since its
backup, while the marks in the training stores say that it was shown. So those marks go, and every duty of the control
plane is opened again: the sensors compare with the event log, show what it lacks, and close the duties.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assets.datasets.documents import takedowns
from operations.metadata_backup import tier_of
from resources import metadata_backup, postgresql
from resources.home import Home
from resources.metadata_backup import SETTINGS, Figures
from resources.tiers import Tiers
from resources.trainings.duties import Duty
from resources.trainings.roots import trainings, trials
from resources.trainings.store import Trainings, TrainingStore
from trainer.base import codec, listing
from trainer.record import files

SCRATCH = ".restored"
DATABASES = ("dagster", "mlflow.db")
RECORDS, FORMAT = "restores", "slipway.restore/1"
MARGIN_SECONDS = 3600.0
"""Marks somewhat older than the backup go too: nothing is shown twice, since the event log is asked."""


@dataclass(frozen=True)
class Restored:
    """What was restored."""

    folder: str
    """Of the backup, on its tier."""
    figures: Figures
    aside: tuple[str, ...]
    """What was in the home before; delete it when all is well."""
    trainings: int
    """How many trainings and trials are looked at again."""
    takedowns: int
    """How many takedowns of documents the durable tier lacked."""
    settings: tuple[str, ...] = ()
    """The files of settings that the home lacked."""


@dataclass(frozen=True)
class RestoreRecord:
    """That somebody restores a backup."""

    backup: str
    """Its folder on the backup tier."""
    by: str
    at: float
    """Seconds since the epoch."""


def restore(home: Home, tiers: Tiers, by: str, folder: str = "") -> Restored:
    """Restore a backup, by default the newest, into a home whose instance is down.

    What is there is set aside beside it, and who asked for it is on record. Raises ValueError when there is no such
    backup or it is not whole, and DamagedCheckpoint, TierUnavailable and OSError as `resources.metadata_backup.restore`
    does.
    """
    tier = tier_of(tiers)
    folder = folder or metadata_backup.newest(tier)
    with metadata_backup.fetched(tier, folder, home.root / SCRATCH) as (scratch, figures):
        there = [name for name in DATABASES if (scratch / name).exists()]
        if not there:
            raise ValueError(f"{tier}/{folder}: found the databases of a server, expected those of a home")
        _note(tiers, folder, by)
        looked_at = _look_at_all_again(tiers, folder)
        taken_down = _restore_takedowns(scratch, tiers.durable_path)
        aside = tuple(_put_back(scratch / name, home.root / name) for name in there)
        settings = tuple(name for name in SETTINGS if _put_where_none_is(scratch / name, home.root / name))
    return Restored(folder, figures, tuple(filter(None, aside)), looked_at, taken_down, settings)


def restore_servers(tiers: Tiers, by: str, folder: str, scratch: Path) -> Restored:
    """Restore a backup, by default the newest, into the databases of the servers; `scratch` is a folder for it.

    Each database is put back in one transaction: when it fails, the database is as it was. Raises as `restore` does,
    and ValueError, with nothing changed, while anybody else is connected to one of the databases.
    """
    tier = tier_of(tiers)
    folder = folder or metadata_backup.newest(tier)
    with metadata_backup.fetched(tier, folder, scratch / SCRATCH) as (fetched, figures):
        dumps = postgresql.dumps(fetched)
        if not dumps:
            raise ValueError(f"{tier}/{folder}: found the databases of a home, expected those of a server")
        for service in dumps:
            postgresql.require_alone(service)
        _note(tiers, folder, by)
        looked_at = _look_at_all_again(tiers, folder)
        taken_down = _restore_takedowns(fetched, tiers.durable_path)
        for service, dump in dumps.items():
            postgresql.restore(service, dump)
    return Restored(folder, figures, (), looked_at, taken_down)


def _note(tiers: Tiers, folder: str, by: str) -> None:
    """Put on record who restores which backup. It comes before the databases change. Raises OSError."""
    now = time.time()
    path = tiers.durable_path / RECORDS / f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%S.%fZ}.json"
    codec.create_only(path, RestoreRecord(folder, by, now), FORMAT)


def _restore_takedowns(backup: Path, durable: Path) -> int:
    """Note the takedowns that the durable tier lacks, of all datasets of the backup; how many these are.

    It comes before the databases change, and may be repeated: none is noted twice.
    """
    kept = backup / metadata_backup.DURABLE
    return sum(
        takedowns.restore(durable, dataset, path)
        for dataset in listing.names_if_there(kept / "datasets")
        if (path := takedowns.path(kept, dataset)).exists()
    )


def finish(home: Home) -> None:
    """Put in place what a restore had verified when it was killed after it had set aside what was there."""
    for place in (home.root / name for name in DATABASES):
        if not place.exists() and _coming(place).exists():
            _coming(place).rename(place)


def _coming(place: Path) -> Path:
    """Where a restored database waits, whole, for what is there to be set aside."""
    return place.with_name(f".{place.name}.restored")


def _put_back(restored: Path, place: Path) -> str:
    """Move what was restored to its place, and what is there aside; returns where that is."""
    coming = _coming(place)
    if coming.is_dir():  # of a restore that was killed before it had set anything aside
        shutil.rmtree(coming)
    coming.unlink(missing_ok=True)
    restored.rename(coming)
    aside = place.with_name(f"{place.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}-{time.time_ns() % 1000:03d}")
    with contextlib.suppress(FileNotFoundError):
        place.rename(aside)
    coming.rename(place)
    return str(aside) if aside.exists() else ""


def _put_where_none_is(restored: Path, place: Path) -> bool:
    """Move restored settings to their place, unless there are some already; whether that was done."""
    if place.exists() or not restored.exists():
        return False
    restored.rename(place)
    return True


def _look_at_all_again(tiers: Tiers, folder: str) -> int:
    """Have the sensors look at all trainings and trials again; how many these are.

    It comes before the databases change: a restore that is killed between the two has cost a look, and no more.
    """
    since = metadata_backup.made_at(folder) - MARGIN_SECONDS
    return len([_look_again(root, store, since, duties) for root, store, duties in _all(tiers)])


def _all(tiers: Tiers) -> Iterator[tuple[Trainings, TrainingStore, tuple[Duty, ...]]]:
    """Every training and trial that was ever wanted, with the duties that the control plane has towards it."""
    below: list[tuple[Trainings, tuple[Duty, ...]]] = [(trainings(tiers), tuple(Duty))]
    below += [(root, (Duty.TRACKING,)) for root in trials(tiers).values()]
    for root, duties in below:
        yield from ((root, store, duties) for store in root.stores() if store.desired() is not None)


def _look_again(root: Trainings, store: TrainingStore, since: float, duties: tuple[Duty, ...]) -> TrainingStore:
    """Open the duties towards a training, and forget what was shown of it since a moment."""
    for duty in duties:
        root.open(store.id, duty)
    for mark in [*(store.folder / files.REPORTED).glob("*"), store.folder / files.TRACKING]:
        with contextlib.suppress(FileNotFoundError):
            if mark.stat().st_mtime >= since:
                mark.unlink()
    return store
