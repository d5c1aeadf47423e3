"""Random draws of a sweep without Optuna. They depend only on the seed and on counters."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.recipes.domain import Domain
from slipway.recipes.search_space import SearchSpace, draw_one, nearest

TRIES = 100
"""The number of attempts to change a copy within the constraints, after which it stays unchanged."""
FEW = 10
"""A whole number in an interval with at most this many values changes by one, otherwise by a factor."""


@dataclass(frozen=True)
class Mutation:
    """The way in which a copy's parameters differ from its parent's."""

    factors: tuple[float, float]
    """One factor below 1 and one above 1, of which one multiplies a number."""
    resample: float
    """The probability that a parameter is drawn anew instead."""


def seed_of(*parts: object) -> int:
    """A whole number below 2^32, the same for the same parts."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:4])


def generator(*parts: object) -> random.Random:
    """A random generator seeded with these parts."""
    return random.Random(seed_of(*parts))


def mutated(
    space: SearchSpace, parameters: Mapping[str, Any], mutation: Mutation, random: random.Random
) -> dict[str, Any]:
    """The parameters of a copy: each is perturbed on its own scale or drawn anew; parameters new to it are drawn.

    A `loguniform` number is multiplied by a factor, a `uniform` number moves by the factor's share of the interval, and
    a value from a list or with steps moves at least to a neighbour. If `TRIES` copies do not fit the constraints, the
    copy keeps its parent's parameters.
    """
    for _ in range(TRIES):
        changed: dict[str, Any] = {}
        for name in space.order:
            if space.exists(name, changed):
                domain = space.domains[name]
                anew = name not in parameters or random.random() < mutation.resample
                changed[name] = (
                    draw_one(domain, random) if anew else _mutated(domain, parameters[name], mutation, random)
                )
        if space.fits(changed):
            return changed
    return dict(parameters)


def _mutated(domain: Domain, value: Any, mutation: Mutation, random: random.Random) -> Any:
    factor = random.choice(mutation.factors)
    many = domain.kind == "randint" and domain.step is None and domain.values[1] - domain.values[0] >= FEW
    listed = None if many else domain.listed()
    if listed is not None:
        return _neighbor(domain, listed, value, factor)
    low, high = domain.values
    if many:
        mutated = round(value * factor)
        mutated += (mutated == value) * (1 if factor > 1 else -1)
        return min(max(mutated, low), high)
    mutated = value * factor if domain.kind == "loguniform" else value + (factor - 1) * (high - low)
    return min(max(mutated, low), high)


def _neighbor(domain: Domain, listed: Sequence[Any], value: Any, factor: float) -> Any:
    """Another value of a list: the next one, or with loguniform the one nearest to the value times the factor."""
    if value not in listed:  # a value of the recipe as it is written
        return value
    index = listed.index(value) + (1 if factor > 1 else -1)
    following = listed[min(max(index, 0), len(listed) - 1)]
    if domain.kind != "loguniform":
        return following
    further = nearest(listed, value * factor)
    if factor > 1:
        return max(further, following)
    return min(further, following)
