"""Roots: the folders in which the durable tier keeps trainings, and the trials of each sweep."""

from pathlib import Path
from typing import TYPE_CHECKING

from slipway.resources.trainings.duties import ID
from slipway.resources.trainings.store import Trainings
from slipway.trainer.base import listing
from slipway.trainer.record import files

if TYPE_CHECKING:  # it imports Dagster, which takes the command line seconds
    from slipway.resources.tiers import Tiers

TRIALS = "trials"


def trainings(tiers: "Tiers") -> Trainings:
    """All trainings of this platform."""
    return Trainings(tiers.durable_path / "trainings")


def trials(tiers: "Tiers") -> dict[str, Trainings]:
    """The trials of each sweep, by the sweep's id. Raises Unreadable when the sweeps cannot be listed, and OSError."""
    return trials_below(tiers.durable_path)


def trials_below(durable: Path) -> dict[str, Trainings]:
    """The same from the durable tier's folder."""
    sweeps = durable / "sweeps"
    names = listing.fitting(sweeps, files.entries(sweeps) or (), lambda name: ID.fullmatch(name) is not None)
    ids = [id for id in names if listing.is_folder(sweeps / id)]
    return {id: Trainings(sweeps / id / TRIALS) for id in ids if TRIALS in listing.names(sweeps / id)}
