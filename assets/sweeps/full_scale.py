"""Full scale: the training that a completed sweep leads to, from the choice of its parameters.

Population-based training finds a schedule of parameters. One training replays it: it begins with the first parameters,
and each change holds after the same share of its steps (`trainer.record.changes`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.sweeps.choice import FullScaleChoice, choose
from assets.sweeps.state import SweepState
from assets.sweeps.subject import SearchSubject
from recipes.training import ModelRecipe, with_parameters
from trainer.config import changing


@dataclass(frozen=True)
class FullScaleTraining:
    """A training with what a sweep found."""

    recipe: ModelRecipe
    origin: Mapping[str, Any]
    """Where its parameters come from."""
    why: str
    cause: str = ""
    """What tells it from a training with the same parameters from its first step to its last."""
    changes: tuple[tuple[int, Mapping[str, Any]], ...] = field(default=())
    """The step after which each change holds, and the new values."""


def led_to(subject: SearchSubject, sweep: SweepState) -> FullScaleTraining | None:
    """The training that a sweep leads to; None for one that is not complete. Raises RefusedValue."""
    chosen = choose(sweep)
    if chosen is None:
        return None
    origin = {"sweep": sweep.plan.sweep, "trial": chosen.trial, **chosen.parameters}
    changes = _changes(chosen, subject.training.run.steps)
    fixed = sorted({name for _, values in changes for name in values if name not in changing.IN_PLACE})
    if not changes or fixed:
        why = f"{chosen.why}; its schedule cannot be replayed, as {', '.join(fixed)} holds for a whole training"
        recipe = with_parameters(subject.training, dict(chosen.parameters))
        return FullScaleTraining(recipe, origin, why if fixed else chosen.why)
    recipe = with_parameters(subject.training, dict(chosen.schedule[0][1]))
    cause = f"the schedule of {sweep.plan.sweep}.{chosen.trial}"
    return FullScaleTraining(recipe, {**origin, "schedule": list(changes)}, chosen.why, cause, changes)


def _changes(chosen: FullScaleChoice, steps: int) -> tuple[tuple[int, Mapping[str, Any]], ...]:
    """The changes of a schedule in a training of so many steps, without what stays as it is."""
    found = []
    for (_, before), (share, values) in zip(chosen.schedule, chosen.schedule[1:], strict=False):
        if new := {name: value for name, value in values.items() if before.get(name) != value}:
            found.append((round(share * steps), new))
    return tuple(found)
