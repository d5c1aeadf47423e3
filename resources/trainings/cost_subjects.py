"""Cost subjects: whom the cost of a training is for: its recipe, its sweep and trial, its team, and why it began."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from slipway.resources.trainings import naming
from slipway.resources.trainings.roots import TRIALS
from slipway.resources.trainings.store import TrainingStore

NOBODY: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class CostSubject:
    """Whom the cost of a training is for."""

    recipe: str
    sweep: str
    """Empty for a training that is no trial."""
    trial: int | None
    team: str
    """Empty where no recipe says."""
    cause: str
    """Why it began, as `naming.kind_of_cause` says."""


def subject(store: TrainingStore, owners: Mapping[str, str] = NOBODY) -> CostSubject:
    """Whom a training's cost is for; `owners` are those of the recipes, by name."""
    try:
        specification, cause = store.specification(), naming.kind_of_cause(store.specification(), store.terms())
    except (ValueError, OSError):
        return CostSubject("", "", None, "", "")
    above = store.folder.parent
    sweep, _, number = store.id.rpartition(".") if above.name == TRIALS else ("", "", "")
    team = owners.get(sweep.rpartition("-")[0]) or owners.get(specification.recipe, "")
    trial = int(number) if number.isdecimal() else None
    return CostSubject(specification.recipe, sweep, trial, team, cause)
