"""Ledger delivery: how far that of a training's ledger to MLflow has come. The one record of it, for all who read it.

It needs neither Dagster nor MLflow: pages and the command line read here which run is a training's.
"""

from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.record.files import TRACKING


@dataclass
class ShippedLedger:
    """How far the delivery of a training's ledger has come."""

    run: str = ""
    """The MLflow run; empty before the first delivery."""
    offsets: dict[str, int] = field(default_factory=dict)
    """Bytes of each segment that are delivered."""
    page: str = ""
    """The page in Dagster that the run links to."""
    evaluations: list[str] = field(default_factory=list)
    """The commits whose scores are delivered."""
    code: list[str] = field(default_factory=list)
    """Files about the code that are still to be delivered as artefacts, relative to the durable tier."""
    files: list[str] = field(default_factory=list)
    """Files of the training's folder that are delivered as artefacts."""
    experiment: str = ""
    """The experiment of the run; empty for a run that an earlier release made, until the next delivery."""

    @staticmethod
    def of(store: TrainingStore) -> "ShippedLedger":
        return ShippedLedger.of_folder(store.folder)

    @staticmethod
    def of_folder(folder: Path) -> "ShippedLedger":
        """Raises OSError, and UndecodableRecord for a damaged one."""
        return codec.read_if_there(folder / TRACKING, ShippedLedger) or ShippedLedger()

    def save(self, store: TrainingStore) -> None:
        codec.replace(store.folder / TRACKING, self)
