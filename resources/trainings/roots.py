"""Roots: the folders in which the durable tier keeps trainings, and the trials of each sweep."""

from resources.tiers import Tiers
from resources.trainings.store import Trainings
from trainer.base import listing
from trainer.record import files

TRIALS = "trials"


def trainings(tiers: Tiers) -> Trainings:
    """All trainings of this platform."""
    return Trainings(tiers.durable_path / "trainings")


def trials(tiers: Tiers) -> dict[str, Trainings]:
    """The trials of each sweep, by the sweep's id. Raises Unreadable when the sweeps cannot be listed, and OSError."""
    sweeps = tiers.durable_path / "sweeps"
    ids = [id for id in files.entries(sweeps) or () if listing.is_folder(sweeps / id)]
    return {id: Trainings(sweeps / id / TRIALS) for id in ids if TRIALS in listing.names(sweeps / id)}
