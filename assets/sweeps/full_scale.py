"""Full scale: the training that follows a completed sweep, with the chosen parameters.

Population-based training finds a schedule of parameters. The training replays it: it starts with the first parameters,
and applies each change after the same share of its steps (`slipway.trainer.record.changes`).
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slipway.assets.sweeps.full_scale_choice import FullScaleChoice, choose
from slipway.assets.sweeps.search_subject import SearchSubject
from slipway.assets.sweeps.state import SweepState
from slipway.assets.sweeps.trials import changed_fields
from slipway.recipes.training import ModelRecipe, with_parameters
from slipway.trainer.config import changing


@dataclass(frozen=True)
class FullScaleTraining:
    """A training with the parameters that a sweep found."""

    recipe: ModelRecipe
    origin: Mapping[str, Any]
    """The origin of its parameters."""
    why: str
    cause: str = ""
    """Distinguishes it from a training with the same, constant parameters."""
    changes: tuple[tuple[int, Mapping[str, Any]], ...] = field(default=())
    """The step after which each change applies, and the new values."""


def led_to(subject: SearchSubject, sweep: SweepState) -> FullScaleTraining | None:
    """The training that follows a sweep; None if the sweep is not complete. Raises RefusedValue."""
    chosen = choose(sweep)
    if chosen is None:
        return None
    origin = {"sweep": sweep.plan.sweep, "trial": chosen.trial, **chosen.parameters}
    changes = _changes(chosen, subject)
    fixed = sorted({name for _, values in changes for name in values if name not in changing.IN_PLACE})
    if not changes or fixed:
        why = f"{chosen.why}; its schedule cannot be replayed, as {', '.join(fixed)} holds for a whole training"
        recipe = with_parameters(subject.training, dict(chosen.parameters))
        return FullScaleTraining(recipe, origin, why if fixed else chosen.why)
    recipe = with_parameters(subject.training, dict(chosen.schedule[0][1]))
    cause = f"the schedule of {sweep.plan.sweep}.{chosen.trial}"
    return FullScaleTraining(recipe, {**origin, "schedule": list(changes)}, chosen.why, cause, changes)


def _changes(chosen: FullScaleChoice, subject: SearchSubject) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    """The changes of a schedule in the training at full scale, without unchanged values. Raises RefusedValue."""
    training = subject.training
    names = subject.recipe.space
    stretches = [(share, _sections(with_parameters(training, dict(values)))) for share, values in chosen.schedule]
    changes = []
    for (_, before), (share, after) in itertools.pairwise(stretches):
        new = changed_fields(names, before, after)
        if new:
            changes.append((round(share * training.run.steps), new))
    return tuple(changes)


def _sections(recipe: ModelRecipe) -> dict[str, Any]:
    return {**recipe.numbers_alone(), **recipe.operation()}
