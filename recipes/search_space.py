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
"""So many draws that do not fit the constraints show that hardly anything does."""


class CircularConditions(ValueError):
    """Parameters whose conditions refer to one another in a circle."""

    def __init__(self, circle: Sequence[str]) -> None:
        self.circle = tuple(circle)
        super().__init__(f"conditions in a circle: {', '.join(circle)}")


class ContradictorySpace(ValueError):
    """A space of which no draw fits the constraints."""


@dataclass(frozen=True)
class SearchSpace:
    """What a sweep draws from."""

    domains: Mapping[str, Domain]
    """By dotted parameter."""
    constraints: tuple[Constraint, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """The values that the recipe has in fields that constraints and conditions name; of a section that is drawn, they
    hold where the section that is drawn leaves them out."""

    @classmethod
    def of(
        cls, space: Mapping[str, Mapping[str, Any]], texts: Sequence[str] = (), fixed: Mapping[str, Any] | None = None
    ) -> "SearchSpace":
        """The space that plain values describe, as the log of a sweep has them. Raises RefusedValue,
        InvalidConstraint."""
        domains = {name: validate(Domain, dict(domain)) for name, domain in space.items()}
        return cls(domains, tuple(map(constraints.parse, texts)), fixed or {})

    @functools.cached_property
    def order(self) -> tuple[str, ...]:
        """The parameters, each after those that its condition names, else by name: samplers draw in that order.

        Raises CircularConditions.
        """
        ordered: list[str] = []
        left = sorted(self.domains)
        while left:
            ready = next((name for name in left if not set(left) & self._named_by(name)), None)
            if ready is None:
                raise CircularConditions(self._circle(set(left)))
            ordered.append(ready)
            left.remove(ready)
        return tuple(ordered)

    def _circle(self, left: set[str]) -> list[str]:
        """The parameters of one circle, in their order, among those whose conditions all name others of them."""
        passed = [min(left)]
        while (following := min(self._named_by(passed[-1]) & left)) not in passed:
            passed.append(following)
        return passed[passed.index(following) :]

    def _named_by(self, name: str) -> set[str]:
        """The parameters that decide what the condition of a parameter names."""
        return {owner for other in self.domains[name].when if (owner := self.decides(other)) is not None}

    def decides(self, name: str) -> str | None:
        """The parameter that decides a name: itself, or a section that it is a field of; None for what is not drawn."""
        parts = name.split(".")
        sections = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((section for section in sections if section in self.domains), None)

    def exists(self, name: str, parameters: Mapping[str, Any]) -> bool:
        """Whether a parameter exists where those that its condition names are as given."""
        when = self.domains[name].when
        if not when:
            return True
        known = self.values(parameters)
        return all(other in known and known[other] in values for other, values in when.items())

    def values_of(self, name: str) -> Sequence[Any] | None:
        """The values that a name may have in trials; None for an interval of numbers."""
        owner = self.decides(name)
        if owner == name:
            return self.domains[name].listed()
        fixed = [self.fixed[name]] if name in self.fixed else []
        if owner is None:
            return fixed
        drawn = [dict(fields_in(owner, choice)) for choice in self.domains[owner].values]
        return [value for each in drawn for value in ([each[name]] if name in each else fixed)]

    def left_by_conditions(self, name: str) -> dict[str, tuple[Any, ...]]:
        """By name, the values that it may have where the parameter exists: what its own condition leaves, and what
        those of the parameters that it names leave. None left: the parameter never exists."""
        left = dict(self.domains[name].when)
        for owner in self._named_by(name):
            for further, values in self.left_by_conditions(owner).items():
                left[further] = tuple(value for value in left.get(further, values) if value in values)
        for other in left.keys() - self.domains.keys():
            possible = self.values_of(other) or ()
            left[other] = tuple(value for value in left[other] if value in possible)
        return left

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What conditions and constraints see of a trial, by name: what is fixed, what is drawn, and the fields of
        sections that are drawn."""
        drawn = {name: value for section, each in parameters.items() for name, value in fields_in(section, each)}
        return {**self.fixed, **drawn}

    def fits(self, parameters: Mapping[str, Any]) -> bool:
        """Whether all constraints hold."""
        if not self.constraints:
            return True
        values = self.values(parameters)
        return all(each.holds(values) for each in self.constraints)

    def draw(self, generator: random.Random, tries: int = TRIES) -> dict[str, Any]:
        """Parameters at random that fit the constraints. Raises ContradictorySpace after so many draws."""
        for _ in range(tries):
            drawn: dict[str, Any] = {}
            for name in self.order:
                if self.exists(name, drawn):
                    drawn[name] = draw_one(self.domains[name], generator)
            if self.fits(drawn):
                return drawn
        texts = "; ".join(each.text for each in self.constraints)
        raise ContradictorySpace(f"of {tries:,} draws none fits the constraints: {texts}")

    def grid(self) -> Iterator[dict[str, Any]]:
        """All combinations that fit, in the order of the domains' values. Every domain must list its values."""
        return (drawn for drawn in self.combinations() if self.fits(drawn))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The same with those that do not fit the constraints."""
        return self._combinations({}, self.order)

    def _combinations(self, drawn: dict[str, Any], left: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        if not left:
            yield drawn
        elif not self.exists(left[0], drawn):
            yield from self._combinations(drawn, left[1:])
        else:
            for value in self.domains[left[0]].listed() or ():
                yield from self._combinations({**drawn, left[0]: value}, left[1:])


def draw_one(domain: Domain, generator: random.Random) -> Any:
    """A value of a domain at random."""
    if domain.kind == "loguniform":
        low, high = domain.values
        drawn = min(max(low * (high / low) ** generator.random(), low), high)
        return drawn if domain.step is None else nearest(domain.listed() or (), drawn)
    listed = domain.listed() if domain.randint is None or domain.step else None
    if listed is not None:
        return generator.choice(listed)
    low, high = domain.values
    return generator.randint(low, high) if domain.kind == "randint" else generator.uniform(low, high)


def nearest(listed: Iterable[Any], value: float) -> Any:
    """Of these numbers, the one that is nearest to a value."""
    return min(listed, key=lambda each: abs(each - value))


def fields_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value and, of a section, all its fields, by name."""
    yield name, value
    if isinstance(value, Mapping):
        for field_name, each in value.items():
            yield from fields_in(f"{name}.{field_name}", each)
