"""Ledger delivery: the record of how much of a training's ledger has been delivered to MLflow.

It imports neither Dagster nor MLflow, so that pages and the command line can look up a training's run.
"""

from dataclasses import dataclass, field
from pathlib import Path

from slipway.resources.trainings.store import TrainingStore
from slipway.trainer.base import codec
from slipway.trainer.record.files import TRACKING


@dataclass
class ShippedLedger:
    """The progress of the delivery of a training's ledger."""

    run: str = ""
    """The MLflow run; empty before the first delivery."""
    offsets: dict[str, int] = field(default_factory=dict)
    """The number of delivered bytes of each segment."""
    page: str = ""
    """The page in Dagster to which the run links."""
    evaluations: list[str] = field(default_factory=list)
    """The commits whose scores have been delivered."""
    code: list[str] = field(default_factory=list)
    """Files about the code that have not been delivered yet, relative to the durable tier."""
    files: list[str] = field(default_factory=list)
    """Files of the training's folder that have been delivered as artefacts."""
    experiment: str = ""
    """The experiment of the run; empty for a run of an earlier release until the next delivery."""

    @staticmethod
    def of(store: TrainingStore) -> "ShippedLedger":
        return ShippedLedger.of_folder(store.folder)

    @staticmethod
    def of_folder(folder: Path) -> "ShippedLedger":
        """Raises OSError, and UndecodableRecord for a damaged record."""
        return codec.read_if_there(folder / TRACKING, ShippedLedger) or ShippedLedger()

    def save(self, store: TrainingStore) -> None:
        codec.replace(store.folder / TRACKING, self)
