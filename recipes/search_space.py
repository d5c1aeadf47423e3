"""A search space: domains, the conditions under which parameters exist, and the constraints between them."""

import functools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipway.recipes import constraints
from slipway.recipes.constraints import Constraint
from slipway.recipes.domain import Domain
from slipway.recipes.strict import validate

TRIES = 10_000
"""Draws without one that fits the constraints, after which the space counts as contradictory."""


class CircularConditions(ValueError):
    """The conditions of some parameters refer to one another in a circle."""

    def __init__(self, circle: Sequence[str]) -> None:
        self.circle = tuple(circle)
        super().__init__(f"conditions in a circle: {', '.join(circle)}")


class ContradictorySpace(ValueError):
    """No draw from the space fits the constraints."""


@dataclass(frozen=True)
class SearchSpace:
    """The domains that a sweep draws from, and the constraints between them."""

    domains: Mapping[str, Domain]
    """By dotted parameter."""
    constraints: tuple[Constraint, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The recipe's values of the fields that constraints and conditions name. In a section that is drawn, they apply to
    the fields that the drawn section leaves out."""

    @classmethod
    def of(
        cls, space: Mapping[str, Mapping[str, Any]], texts: Sequence[str] = (), fixed: Mapping[str, Any] | None = None
    ) -> "SearchSpace":
        """The space that JSON values in the log of a sweep describe. Raises RefusedValue and InvalidConstraint."""
        domains = {name: validate(Domain, dict(domain)) for name, domain in space.items()}
        return cls(domains, tuple(map(constraints.parse, texts)), fixed or {})

    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        """The parameters in the order in which samplers draw them: each after those that its condition names.

        Parameters that do not depend on each other are sorted by name.

        Raises CircularConditions.
        """
        ordered: list[str] = []
        unordered = sorted(self.domains)
        while unordered:
            ready = next((name for name in unordered if not set(unordered) & self._named_by(name)), None)
            if ready is None:
                raise CircularConditions(self._circle(set(unordered)))
            ordered.append(ready)
            unordered.remove(ready)
        return tuple(ordered)

    def _circle(self, unordered: set[str]) -> list[str]:
        """The parameters of one circle, in their order. Every condition of `unordered` names another one of them."""
        passed: list[str] = []
        following = min(unordered)
        while following not in passed:
            passed.append(following)
            following = min(self._named_by(following) & unordered)
        return passed[passed.index(following) :]

    def _named_by(self, name: str) -> set[str]:
        """The parameters that decide the values that the condition of a parameter names."""
        owners = map(self.decides, self.domains[name].when)
        return {owner for owner in owners if owner is not None}

    def decides(self, name: str) -> str | None:
        """The parameter that decides a field: itself, or a section that contains it; None for a field not drawn."""
        parts = name.split(".")
        sections = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((section for section in sections if section in self.domains), None)

    def exists(self, name: str, parameters: Mapping[str, Any]) -> bool:
        """Whether a parameter exists in a trial with these parameters."""
        when = self.domains[name].when
        if not when:
            return True
        known = self.values(parameters)
        return all(other in known and known[other] in values for other, values in when.items())

    def values_of(self, name: str) -> Sequence[Any] | None:
        """The values that a field may have in trials; None for an interval of numbers."""
        owner = self.decides(name)
        if owner == name:
            return self.domains[name].listed()
        fixed = [self.fixed[name]] if name in self.fixed else []
        if owner is None:
            return fixed
        drawn = [dict(fields_in(owner, choice)) for choice in self.domains[owner].values]
        return [value for section in drawn for value in ([section[name]] if name in section else fixed)]

    def left_by_conditions(self, name: str) -> dict[str, tuple[Any, ...]]:
        """The values, by field, with which the parameter exists: its own condition permits them, and so do the
        conditions of the parameters that it names. If a field has none, the parameter never exists."""
        allowed = dict(self.domains[name].when)
        for owner in self._named_by(name):
            for further, values in self.left_by_conditions(owner).items():
                allowed[further] = tuple(value for value in allowed.get(further, values) if value in values)
        for other in allowed.keys() - self.domains.keys():
            possible = self.values_of(other) or ()
            allowed[other] = tuple(value for value in allowed[other] if value in possible)
        return allowed

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The values by field that conditions and constraints use: the fixed values, the drawn parameters, and the
        fields of drawn sections."""
        drawn = {
            name: value
            for section, section_value in parameters.items()
            for name, value in fields_in(section, section_value)
        }
        return {**self.fixed, **drawn}

    def fits(self, parameters: Mapping[str, Any]) -> bool:
        """Whether all constraints hold."""
        if not self.constraints:
            return True
        values = self.values(parameters)
        return all(constraint.holds(values) for constraint in self.constraints)

    def draw(self, generator: random.Random, tries: int = TRIES) -> dict[str, Any]:
        """Random parameters that fit the constraints. Raises ContradictorySpace if `tries` draws have none."""
        for _ in range(tries):
            drawn: dict[str, Any] = {}
            for name in self.order:
                if self.exists(name, drawn):
                    drawn[name] = draw_one(self.domains[name], generator)
            if self.fits(drawn):
                return drawn
        texts = "; ".join(constraint.text for constraint in self.constraints)
        raise ContradictorySpace(f"none of {tries:,} draws fits the constraints: {texts}")

    def grid(self) -> Iterator[dict[str, Any]]:
        """All combinations that fit, in the order of the domains' values. Every domain must list its values."""
        return (drawn for drawn in self.combinations() if self.fits(drawn))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """Like `grid`, but with the combinations that do not fit the constraints."""
        return self._combinations({}, self.order)

    def _combinations(self, drawn: dict[str, Any], names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        if not names:
            yield drawn
        elif not self.exists(names[0], drawn):
            yield from self._combinations(drawn, names[1:])
        else:
            for value in self.domains[names[0]].listed() or ():
                yield from self._combinations({**drawn, names[0]: value}, names[1:])


def draw_one(domain: Domain, generator: random.Random) -> Any:
    """A random value of a domain."""
    if domain.kind == "loguniform":
        low, high = domain.values
        drawn = min(max(low * (high / low) ** generator.random(), low), high)
        if domain.step is None:
            return drawn
        return nearest(domain.listed() or (), drawn)
    listed = domain.listed() if domain.randint is None or domain.step else None
    if listed is not None:
        return generator.choice(listed)
    low, high = domain.values
    if domain.kind == "randint":
        return generator.randint(low, high)
    return generator.uniform(low, high)


def nearest(listed: Iterable[Any], value: float) -> Any:
    """The number in `listed` that is nearest to a value."""
    return min(listed, key=lambda candidate: abs(candidate - value))


def fields_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value by its name and, if it is a section, all its fields by theirs."""
    yield name, value
    if isinstance(value, Mapping):
        for field_name, field_value in value.items():
            yield from fields_in(f"{name}.{field_name}", field_value)
