"""The subject of a sweep: what is searched, on which data, and the training recipe of each trial."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipway.assets.sweeps import events, plan
from slipway.assets.training import terms
from slipway.recipes.sweep import SweepRecipe
from slipway.recipes.training import ModelRecipe, with_parameters
from slipway.resources.trainings.records import Specification, Terms
from slipway.trainer.base import atomic, digest


@dataclass(frozen=True)
class SearchSubject:
    """A sweep recipe, its training recipe and a snapshot."""

    recipe: SweepRecipe
    training: ModelRecipe
    snapshot: str
    tokenizer: str

    def trial(self, parameters: Mapping[str, Any]) -> ModelRecipe:
        """The recipe of the trial with these parameters: a trial is a training. Raises RefusedValue."""
        return with_parameters(self.recipe.trial_of(self.training), dict(parameters))

    def trial_specification(self, recipe: ModelRecipe) -> Specification:
        """What a trial of this recipe computes."""
        return Specification(recipe.name, recipe.numbers(), self.snapshot, self.tokenizer)

    def trial_terms(self, recipe: ModelRecipe, sweep: str, trial: int, parameters: Mapping[str, Any]) -> Terms:
        """Where a trial of this recipe may run, and where its parameters come from."""
        return terms(recipe, {"sweep": sweep, "trial": trial, **parameters}, owner=self.recipe.owner)

    def specification(self) -> dict[str, object]:
        """Everything that decides what the sweep is, as JSON; its hash is in the sweep's id."""
        return {
            "sweep": plan.identity(self.recipe),
            "numbers": self.training.numbers(),
            "snapshot": self.snapshot,
            "tokenizer": self.tokenizer,
        }

    def opened(self, sweep: str) -> events.Opened:
        """The first event of its log: what the sweep is."""
        known = digest.sha256(atomic.canonical_json(self.specification()))
        return plan.opened(self.recipe, self.training, sweep, known)

    def budget(self) -> events.Budgeted:
        """What the recipe lets it spend."""
        return plan.budget(self.recipe)
