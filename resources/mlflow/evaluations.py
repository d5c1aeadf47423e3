"""Evaluations in MLflow: the scores of a training's checkpoints, as metrics of its run, by the step of each.

They have the same names in every run, so that MLflow lays the curves of several trainings over one another.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

from slipway.resources.trainings.facts import TrainingFacts
from slipway.trainer.base import codec
from slipway.trainer.record import files
from slipway.trainer.record.scores import Score

if TYPE_CHECKING:
    from mlflow.entities import Metric

FIGURES = ("loss", "perplexity", "accuracy")


def new(facts: TrainingFacts, delivered: Collection[str]) -> "dict[str, list[Metric]]":
    """By the name of a commit, the metrics of its score, for those that are not delivered yet.

    A metric has the time of its commit: delivering it twice changes nothing.
    """
    from mlflow.entities import Metric

    found: dict[str, list[Metric]] = {}
    there = set(files.names(facts.folder, files.EVALUATIONS)) - set(delivered)
    for commit in facts.commits if there else ():
        path = files.named(facts.folder, files.EVALUATIONS, commit.name)
        if commit.name not in there or (score := codec.read_if_whole(path, Score)) is None or score.damaged:
            continue
        known = {name: getattr(score, name) for name in FIGURES} | score.coded
        at = int(commit.at * 1000)
        found[commit.name] = [Metric(f"evaluation_{name}", value, at, commit.step) for name, value in known.items()]
    return found
