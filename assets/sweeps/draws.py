"""Random draws of a sweep that Optuna has no part in: a function of the seed and of counters alone."""

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.recipes.domain import Domain
from slipway.recipes.search_space import SearchSpace, draw_one, nearest

TRIES = 100
"""So many changed copies that do not fit the constraints, and the copy is not changed."""
FEW = 10
"""A whole number of an interval with at most so many values moves by one, else by a factor."""


@dataclass(frozen=True)
class Mutation:
    """How the parameters of a copy differ from those of its parent."""

    factors: tuple[float, float]
    """Below 1 and above 1: one of them multiplies a number."""
    resample: float
    """The probability with which a parameter is drawn anew instead."""


def seed_of(*parts: object) -> int:
    """A whole number below 2^32, the same for the same parts."""
    return int.from_bytes(hashlib.sha256(":".join(map(str, parts)).encode()).digest()[:4])


def generator(*parts: object) -> random.Random:
    """A generator that depends on these parts alone."""
    return random.Random(seed_of(*parts))


def mutated(
    space: SearchSpace, parameters: Mapping[str, Any], mutation: Mutation, random: random.Random
) -> dict[str, Any]:
    """The parameters of a copy: each perturbed on its own scale, or drawn anew; those that begin to exist are drawn.

    A number of `loguniform` is multiplied by a factor, one of `uniform` moves by the factor's share of the interval,
    and one of a list or with steps goes to a neighbour at the least. After `TRIES` copies that do not fit the
    constraints, the copy is as its parent.
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
        return _neighbour(domain, listed, value, factor)
    low, high = domain.values
    if many:
        mutated = round(value * factor)
        mutated += (mutated == value) * (1 if factor > 1 else -1)
        return min(max(mutated, low), high)
    mutated = value * factor if domain.kind == "loguniform" else value + (factor - 1) * (high - low)
    return min(max(mutated, low), high)


def _neighbour(domain: Domain, listed: Sequence[Any], value: Any, factor: float) -> Any:
    """Another value of a list: the next one; with loguniform, the one nearest to the value times the factor."""
    if value not in listed:  # of the recipe as it is written
        return value
    index = listed.index(value) + (1 if factor > 1 else -1)
    following = listed[min(max(index, 0), len(listed) - 1)]
    if domain.kind != "loguniform":
        return following
    further = nearest(listed, value * factor)
    return max(further, following) if factor > 1 else min(further, following)
