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
        unordered = sorted(self.domains)
        while unordered:
            ready = next((name for name in unordered if not set(unordered) & self._named_by(name)), None)
            if ready is None:
                raise CircularConditions(self._circle(set(unordered)))
            ordered.append(ready)
            unordered.remove(ready)
        return tuple(ordered)

    def _circle(self, unordered: set[str]) -> list[str]:
        """The parameters of one circle, in their order, among those whose conditions all name others of them."""
        passed = [min(unordered)]
        while (following := min(self._named_by(passed[-1]) & unordered)) not in passed:
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
        return [value for section in drawn for value in ([section[name]] if name in section else fixed)]

    def left_by_conditions(self, name: str) -> dict[str, tuple[Any, ...]]:
        """By name, the values that it may have where the parameter exists: what its own condition leaves, and what
        those of the parameters that it names leave. None left: the parameter never exists."""
        allowed = dict(self.domains[name].when)
        for owner in self._named_by(name):
            for further, values in self.left_by_conditions(owner).items():
                allowed[further] = tuple(value for value in allowed.get(further, values) if value in values)
        for other in allowed.keys() - self.domains.keys():
            possible = self.values_of(other) or ()
            allowed[other] = tuple(value for value in allowed[other] if value in possible)
        return allowed

    def values(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """What conditions and constraints see of a trial, by name: what is fixed, what is drawn, and the fields of
        sections that are drawn."""
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
        """Parameters at random that fit the constraints. Raises ContradictorySpace after so many draws."""
        for _ in range(tries):
            drawn: dict[str, Any] = {}
            for name in self.order:
                if self.exists(name, drawn):
                    drawn[name] = draw_one(self.domains[name], generator)
            if self.fits(drawn):
                return drawn
        texts = "; ".join(constraint.text for constraint in self.constraints)
        raise ContradictorySpace(f"of {tries:,} draws none fits the constraints: {texts}")

    def grid(self) -> Iterator[dict[str, Any]]:
        """All combinations that fit, in the order of the domains' values. Every domain must list its values."""
        return (drawn for drawn in self.combinations() if self.fits(drawn))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The same with those that do not fit the constraints."""
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
    return min(listed, key=lambda candidate: abs(candidate - value))


def fields_in(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value and, of a section, all its fields, by name."""
    yield name, value
    if isinstance(value, Mapping):
        for field_name, field_value in value.items():
            yield from fields_in(f"{name}.{field_name}", field_value)
