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

from slipway.assets.datasets.documents import held_out, takedowns
from slipway.operations.metadata_backup import tier_of
from slipway.resources import metadata_backup, postgresql
from slipway.resources.home import Home
from slipway.resources.metadata_backup import SETTINGS, Figures
from slipway.resources.tiers import Tiers
from slipway.resources.trainings.store import Trainings, TrainingStore, WorkQueue, all_trainings, all_trials
from slipway.trainer.base import codec, listing, scratch
from slipway.trainer.base.units import HOUR
from slipway.trainer.record import files

SCRATCH, VERIFIED = ".restoring", "verified"
"""In a home: what is being restored, and within it what may be put in place."""
DATABASES = ("dagster", "mlflow.db")
BESIDE = ("-journal", "-wal", "-shm")
"""What SQLite keeps beside a database that was not closed, and would take for a part of the one that is restored."""
RECORDS = "restores"
FORMAT = "slipway.restore/1"
MARGIN_SECONDS = HOUR
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
    backup or it is not whole, and DamagedCheckpoint, TierUnavailable and OSError as
    `slipway.resources.metadata_backup.restore` does.
    """
    finish(home)
    tier = tier_of(tiers)
    folder = folder or metadata_backup.newest(tier)
    with metadata_backup.fetched(tier, folder, SCRATCH, home.root) as (fetched, figures):
        there = [name for name in DATABASES if (fetched / name).exists()]
        if not there:
            raise ValueError(f"{tier}/{folder}: found the databases of a server, expected those of a home")
        _note(tiers, folder, by)
        looked_at = _look_at_all_again(tiers, folder)
        taken_down = _restore_takedowns(fetched, tiers.durable_path)
        _restore_held_out(fetched, tiers.durable_path)
        verified = fetched.rename(fetched.with_name(VERIFIED))
        aside = tuple(_put_back(verified / name, home.root / name) for name in there)
        settings = tuple(name for name in SETTINGS if _put_where_none_is(verified / name, home.root / name))
    return Restored(folder, figures, tuple(filter(None, aside)), looked_at, taken_down, settings)


def restore_servers(tiers: Tiers, by: str, folder: str, parent: Path) -> Restored:
    """Restore a backup, by default the newest, into the databases of the servers; its copy lies in `parent` meanwhile.

    Each database is put back in one transaction: when it fails, the database is as it was. Raises as `restore` does,
    and ValueError, with nothing changed, while anybody else is connected to one of the databases.
    """
    tier = tier_of(tiers)
    folder = folder or metadata_backup.newest(tier)
    with metadata_backup.fetched(tier, folder, SCRATCH, parent) as (fetched, figures):
        dumps = postgresql.dumps(fetched)
        if not dumps:
            raise ValueError(f"{tier}/{folder}: found the databases of a home, expected those of a server")
        for service in dumps:
            postgresql.require_alone(service)
        _note(tiers, folder, by)
        looked_at = _look_at_all_again(tiers, folder)
        taken_down = _restore_takedowns(fetched, tiers.durable_path)
        _restore_held_out(fetched, tiers.durable_path)
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
    copy = backup / metadata_backup.DURABLE
    return sum(
        takedowns.restore(durable, dataset, path)
        for dataset in listing.names_if_there(copy / "datasets")
        if (path := takedowns.path(copy, dataset)).exists()
    )


def _restore_held_out(backup: Path, durable: Path) -> None:
    """Put back what small datasets hold out, where the durable tier does not know it."""
    copy = backup / metadata_backup.DURABLE
    for dataset in listing.names_if_there(copy / "datasets"):
        if (path := held_out.path(copy, dataset)).exists():
            held_out.restore(durable, dataset, path)


def finish(home: Home) -> None:
    """End what killed restores have left: where one had set a database aside, it is put in place. Raises OSError."""
    for abandoned in scratch.abandoned(SCRATCH, home.root):
        for name in DATABASES:
            verified = abandoned / VERIFIED / name
            target = home.root / name
            if verified.exists() and not target.exists():
                _put_back(verified, target)
        shutil.rmtree(abandoned, ignore_errors=True)


def _put_back(restored: Path, target: Path) -> str:
    """Move what was restored to its place, and what is there aside; returns where that is."""
    aside = target.with_name(f"{target.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S}-{time.time_ns() % 1000:03d}")
    for end in ("", *BESIDE):
        with contextlib.suppress(FileNotFoundError):
            target.with_name(target.name + end).rename(aside.with_name(aside.name + end))
    restored.rename(target)
    return str(aside) if aside.exists() else ""


def _put_where_none_is(restored: Path, target: Path) -> bool:
    """Move restored settings to their place, unless there are some already; whether that was done."""
    if target.exists() or not restored.exists():
        return False
    restored.rename(target)
    return True


def _look_at_all_again(tiers: Tiers, folder: str) -> int:
    """Have the sensors look at all trainings and trials again; how many these are.

    It comes before the databases change: a restore that is killed between the two has cost a look, and no more.
    """
    since = metadata_backup.made_at(folder) - MARGIN_SECONDS
    return len([_look_again(root, store, since, duties) for root, store, duties in _all(tiers)])


def _all(tiers: Tiers) -> Iterator[tuple[Trainings, TrainingStore, tuple[WorkQueue, ...]]]:
    """Every training and trial that was ever wanted, with the duties that the control plane has towards it."""
    below: list[tuple[Trainings, tuple[WorkQueue, ...]]] = [(all_trainings(tiers), tuple(WorkQueue))]
    below += [(root, (WorkQueue.TRACKING,)) for root in all_trials(tiers).values()]
    for root, duties in below:
        yield from ((root, store, duties) for store in root.stores() if store.desired() is not None)


def _look_again(root: Trainings, store: TrainingStore, since: float, duties: tuple[WorkQueue, ...]) -> TrainingStore:
    """Open the duties towards a training, and forget what was shown of it since a moment."""
    for duty in duties:
        root.open(store.id, duty)
    for mark in [*(store.folder / files.REPORTED).glob("*"), store.folder / files.TRACKING]:
        with contextlib.suppress(FileNotFoundError):
            if mark.stat().st_mtime >= since:
                mark.unlink()
    return store
