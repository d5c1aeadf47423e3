"""The mix of a training on several datasets: the share of its tokens that each gives, and from which step on.

A weight is a share of tokens: every sample is a window of `batch.length` tokens, whichever dataset it comes from, so a
share of samples is the same share of tokens. Weights need not sum to 1.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from slipway.trainer.base.invalid import require

PARTS = 10_000
"""Weights are rounded to so many parts of their sum: the order repeats its pattern after as many samples at most."""


@dataclass(frozen=True, kw_only=True)
class MixPhase:
    """The weights from one step on."""

    after_step: int
    """The phase begins after so many steps: its first step is the next one."""
    weights: Mapping[str, float]
    """By dataset, its share of the tokens; a dataset that is not named is not read."""

    def __post_init__(self) -> None:
        require(self.after_step > 0, "after_step", "expected a number above 0; the first weights are those of the mix")
        _check_weights(self.weights)


@dataclass(frozen=True, kw_only=True)
class Mix:
    """The datasets of a training, and the share of its tokens that each gives."""

    weights: Mapping[str, float]
    """By dataset, its share of the tokens from the first step on, in any unit: `{web: 8, code: 2}`."""
    phases: tuple[MixPhase, ...] = ()
    """Other weights from later steps on, in the order of their steps."""
    passes_at_most: float | None = None
    """How often a dataset is read at most; a training that would read one more often is refused. null for no limit."""

    def __post_init__(self) -> None:
        _check_weights(self.weights)
        begins = [phase.after_step for phase in self.phases]
        expected = "expected each after_step to be above the one before"
        require(begins == sorted(set(begins)), "phases", expected)
        require(len(self.names) > 1, "weights", "expected two datasets or more; one alone is named by `dataset`")
        limit = self.passes_at_most
        require(limit is None or limit > 0, "passes_at_most", "expected a number above 0, or null")

    @property
    def names(self) -> list[str]:
        """The datasets of all phases, sorted."""
        return sorted({*self.weights, *(name for phase in self.phases for name in phase.weights)})

    def until(self, steps: int) -> list[tuple[int, dict[str, int]]]:
        """What decides the samples of the first `steps` steps: where each phase begins, and the parts of each dataset.

        Two mixes for which this is equal read the same samples in these steps.
        """
        every = [(0, self.weights), *((phase.after_step, phase.weights) for phase in self.phases)]
        return [(begin, parts(weights)) for begin, weights in every if begin < steps]


def check_comes(mix: Mix | None, steps: int) -> None:
    """Raises Invalid, with the dotted field, for a phase that a training of so many steps never reaches."""
    last = mix.phases[-1].after_step if mix and mix.phases else 0
    expected = f"expected every after_step below run.steps ({steps}): the phase after step {last} never comes"
    require(last < steps or last == 0, "mix.phases", expected)


def parts(weights: Mapping[str, float]) -> dict[str, int]:
    """Weights as the smallest whole numbers in their proportion, by dataset in the order of the names.

    They are first rounded to `PARTS` parts in all by the largest remainder (Hamilton's method), in exact arithmetic.
    """
    names = sorted(weights)
    total = sum(Fraction(weights[name]) for name in names)
    exact = [Fraction(weights[name]) * PARTS / total for name in names]
    counts = [math.floor(share) for share in exact]
    for index in _largest_remainders(exact, counts)[: PARTS - sum(counts)]:
        counts[index] += 1
    unit = math.gcd(*counts)
    return {name: count // unit for name, count in zip(names, counts, strict=True)}


def _largest_remainders(exact: Sequence[Fraction], counts: Sequence[int]) -> list[int]:
    return sorted(range(len(exact)), key=lambda index: (counts[index] - exact[index], index))


def _check_weights(weights: Mapping[str, float]) -> None:
    require(bool(weights), "weights", "expected a weight for each dataset")
    for name, weight in weights.items():
        expected = "expected a number above 0; a dataset that is left out is not named"
        require(math.isfinite(weight) and weight > 0, f"weights.{name}", expected)
    total = sum(map(Fraction, weights.values()))
    for name, weight in weights.items():
        expected = f"expected {float(total) / PARTS:g} or more: 1/{PARTS} of the sum of the weights"
        require(Fraction(weight) * PARTS >= total, f"weights.{name}", expected)
