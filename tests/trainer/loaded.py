"""The model of a checkpoint, for tests that compute by themselves what an evaluation should find."""

from slipway.trainer import evaluate
from slipway.trainer.checkpoint.disk.contents import Contents
from slipway.trainer.data import snapshots
from slipway.trainer.elastic.process_groups import join
from slipway.trainer.models.model import Model


def model_of(checkpoint: Contents, snapshot: snapshots.Snapshot) -> Model:
    """In evaluation mode, whole and in this process."""
    with join() as alone:
        return evaluate._loaded(
            "a checkpoint", checkpoint, evaluate._config({}, checkpoint, alone), snapshot, alone
        ).model
