"""Waiting: why a candidate that was judged is no champion yet, read without MLflow."""

from pathlib import Path

from slipway.resources.mlflow import holding
from slipway.resources.mlflow.promotion import Judgement, history, judged, models


def undecided(durable: Path, manifest: str) -> Judgement | None:
    """The newest judgement of a checkpoint where it could not be decided; read without MLflow.

    The checkpoint is looked for among the candidates of all models.
    """
    return next((each for each in _judgements(durable, manifest) if each.undecided), None)


def held_back(durable: Path, manifest: str) -> str:
    """Why a checkpoint that passed waits for a person or for time; empty for one that does not. Without MLflow."""
    for each in _judgements(durable, manifest):
        if each.passed and (why := holding.reason(durable / "models" / each.model, each, history(durable, each.model))):
            return why
    return ""


def _judgements(durable: Path, manifest: str) -> list[Judgement]:
    """The newest judgements of a checkpoint as candidate of all models."""
    found = [judged(durable, name, manifest) for name in models(durable)]
    return [each for each in found if each is not None]
