"""The evaluation set: the examples on which both candidate and champion are measured.

For models of texts it is a suite: that of the candidate's recipe, or the validation documents of the candidate's
snapshot. For other models it is the validation split itself, whose samples are the examples.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from slipway.assets.measurement import Measuring
from slipway.assets.suites import encoding, making, measured, suite
from slipway.assets.suites.measured import ExampleTable, ModelFigures
from slipway.assets.suites.suite import Example, Suite
from slipway.recipes.suite import HeldOutSection, SuiteRecipe
from slipway.recipes.training import ModelRecipe
from slipway.resources.trainings.records import RunPolicy
from slipway.trainer.data import shards
from slipway.trainer.data.shards import TextSnapshot
from slipway.trainer.data.snapshots import Snapshot
from slipway.trainer.record.fence import Commit


@dataclass(frozen=True)
class EvaluationSet:
    """A suite with its examples, or the validation split of a snapshot."""

    measuring: Measuring
    on: str
    """SHA-256 of the suite, or of the snapshot."""
    suite: Suite | None = None
    examples: tuple[Example, ...] = ()

    def measure(self, commit: Commit, policy: RunPolicy, described: Snapshot) -> tuple[ModelFigures, ExampleTable]:
        """Measure a model on every example; `described` is the snapshot that it was trained on.

        Raises ValueError for a model that cannot be measured on it, and dg.Failure.
        """
        durable = self.measuring.tiers.durable_path
        known = measured.known(durable, self.on, commit.manifest)
        if known is not None:
            return known, measured.examples(durable, known)
        snapshot = self._snapshot(durable, described)
        score = self.measuring.measure_each(snapshot, commit, policy, self._documents)
        if score.damaged or score.examples is None:
            raise ValueError(score.damaged)
        table = measured.of_suite(self.examples, score.examples) if self.suite else measured.of_split(score.examples)
        figures = measured.keep(durable, commit.manifest, self.on, table, score.examples, self.suite is not None)
        return figures, table

    @property
    def _documents(self) -> int | None:
        """The number of documents, which come first; the questions after them do not count for the calibration."""
        if self.suite is None:
            return None
        return sum(1 for _ in itertools.takewhile(lambda example: not example.answers, self.examples))

    def _snapshot(self, durable: Path, described: Snapshot) -> str:
        """The snapshot that the evaluator reads."""
        if self.suite is None:
            return self.on
        if not isinstance(described, TextSnapshot):
            raise ValueError("it was trained on pictures, expected a model of texts")
        return encoding.encoded(durable, self.suite, self.examples, described).sha256


def of_recipe(
    measuring: Measuring, recipe: ModelRecipe, suites: Mapping[str, SuiteRecipe], described: Snapshot, text: bool
) -> EvaluationSet:
    """The evaluation set of a candidate; `described` is its snapshot, `text` says whether it is a model of texts.

    Raises ValueError if the suite cannot be made or read.
    """
    if not text or not isinstance(described, shards.TextSnapshot):
        return EvaluationSet(measuring, described.sha256)
    durable = measuring.tiers.durable_path
    if recipe.suite is not None:
        suite_of_recipe = making.named(durable, suites[recipe.suite])
    else:
        suite_of_recipe = making.of_snapshot(durable, described, HeldOutSection())
    return EvaluationSet(
        measuring, suite_of_recipe.sha256, suite_of_recipe, tuple(suite.examples(durable, suite_of_recipe))
    )


def is_current(durable: Path, recipe: ModelRecipe, evaluation: EvaluationSet) -> bool:
    """Whether the recipe's suite is still the one of the measurement."""
    if recipe.suite is None or evaluation.suite is None:
        return True
    known = suite.named(durable, recipe.suite)
    return known is not None and known.suite == evaluation.on
