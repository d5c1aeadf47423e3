"""A search space in Optuna's form: a distribution for each parameter, and the coding of values in both directions.

A choice is coded as its index in the list, because Optuna's choices are only numbers and texts, and 1 equals true for
it. The values of an interval with steps are coded as indices too, so that Optuna's models see their order. With
loguniform, a value with steps is coded as its number of steps from 0, whose logarithm Optuna draws uniformly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipway.recipes.domain import Domain
from slipway.recipes.search_space import SearchSpace

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class _Listed:
    """The values of a domain that is coded as whole numbers, in order."""

    values: Sequence[Any]
    first: int
    """The code of the first value."""

    def coded(self, value: Any) -> int | None:
        same = (index for index, known in enumerate(self.values) if _same(known, value))
        return next((self.first + index for index in same), None)

    def value(self, code: int) -> Any:
        return self.values[code - self.first]


class Coding:
    """The distributions of a space, and the coding of its parameters for Optuna."""

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.distributions = {name: _distribution(space.domains[name]) for name in space.order}
        lists = {name: _listed(space.domains[name]) for name in space.order}
        self._lists = {name: listed for name, listed in lists.items() if listed is not None}

    def drawn(self, study: "optuna.Study") -> dict[str, Any]:
        """The parameters of the study's next trial, which the study then counts as running."""
        return self.drawn_by(study.ask())

    def drawn_by(self, trial: "optuna.Trial") -> dict[str, Any]:
        """The existing parameters of a trial, each after those that its condition names."""
        parameters: dict[str, Any] = {}
        for name in self.space.order:
            if self.space.exists(name, parameters):
                coded = _suggested(trial, name, self.distributions[name])
                parameters[name] = self._lists[name].value(coded) if name in self._lists else coded
        return parameters

    def coded(self, parameters: Mapping[str, Any]) -> dict[str, Any] | None:
        """The coded parameters; None if one is outside the space, which can happen for a recipe's own values."""
        coded: dict[str, Any] = {}
        for name, value in parameters.items():
            if name in self._lists:
                code = self._lists[name].coded(value)
                if code is None:
                    return None
                coded[name] = code
            else:
                low, high = self.space.domains[name].values
                if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                    return None
                coded[name] = value
        expected = {name for name in self.space.order if self.space.exists(name, parameters)}
        return coded if expected == coded.keys() else None


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _listed(domain: Domain) -> _Listed | None:
    """The values of a domain that is coded as whole numbers; None for other domains."""
    values = None
    if domain.choice is not None or domain.step is not None:
        values = domain.listed()
    if values is None:
        return None
    return _Listed(values, round(values[0] / domain.step) if domain.kind == "loguniform" and domain.step else 0)


def _distribution(domain: Domain) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    listed = _listed(domain)
    if listed is not None:
        last = listed.first + len(listed.values) - 1
        if domain.kind == "choice":
            return CategoricalDistribution(range(last + 1))
        return IntDistribution(listed.first, last, log=domain.kind == "loguniform")
    low, high = domain.values
    if domain.kind == "randint":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=domain.kind == "loguniform")


def _suggested(trial: "optuna.Trial", name: str, distribution: "BaseDistribution") -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    match distribution:
        case CategoricalDistribution(choices=choices):
            return trial.suggest_categorical(name, choices)
        case IntDistribution(low=low, high=high, log=log):
            return trial.suggest_int(name, low, high, log=log)
        case FloatDistribution(low=low, high=high, log=log):
            return trial.suggest_float(name, low, high, log=log)
    raise AssertionError(f"no domain has the distribution {distribution!r}")
