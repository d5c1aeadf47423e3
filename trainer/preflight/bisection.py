"""Bisection: which node spoils the network between many, found by all-reduces among ever smaller groups. Pure.

Each round measures disjoint groups at once. A group that is good clears all its nodes; one that is not is divided in
two, down to single nodes, each of which is measured with a node that is known to be good. So 2^n nodes take n rounds.

    state = begin(nodes)
    while groups := next_round(state):
        state = after(state, {group: good for group, good in measured(groups)})
    state.bad, state.unresolved
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SLOW = 0.5
"""A group is bad if it is slower than this share of the fastest one, or of the expected rate: the same share below
which `findings` judges a rate as faulty."""


@dataclass(frozen=True)
class NodeGroup:
    """Nodes that exchange with one another."""

    suspects: tuple[str, ...]
    peer: str = ""
    """A node that is known to be good, for a lone suspect; empty for a group of several."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return (*self.suspects, *([self.peer] if self.peer else []))


@dataclass(frozen=True)
class BisectionState:
    """The state of the search after some rounds."""

    untested: tuple[tuple[str, ...], ...]
    """Halves that are to be measured."""
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()

    @property
    def unresolved(self) -> tuple[str, ...]:
        """Nodes of which nothing is known, once no round is left: there was no good node to measure them with."""
        return tuple(node for group in self.untested for node in group)


def begin(suspects: Sequence[str], good: Sequence[str] = ()) -> BisectionState:
    """The state before the first round; `good`: nodes that are known to be good. Raises ValueError for a node that is
    named twice, and for a single node, which has no partner."""
    named = [*suspects, *good]
    if len(named) < 2:
        alone = named[0] if named else "none"
        raise ValueError(f"nodes: found {alone} alone, expected two at least, or one and a good one")
    twice = sorted({node for node in named if named.count(node) > 1})
    if twice:
        raise ValueError(f"nodes: found {', '.join(twice)} twice, expected each node once")
    return BisectionState(_halves(tuple(suspects)), tuple(good))


def next_round(state: BisectionState) -> list[NodeGroup]:
    """The groups to measure at the same time; empty if no further measurement helps."""
    peers = list(state.good)
    groups = list[NodeGroup]()
    for half in state.untested:
        if len(half) > 1:
            groups.append(NodeGroup(half))
        elif peers:
            groups.append(NodeGroup(half, peers.pop(0)))
    return groups


def after(state: BisectionState, is_good: Mapping[NodeGroup, bool]) -> BisectionState:
    """The state after a round; `is_good` has the measured groups."""
    measured = {group.suspects: good for group, good in is_good.items()}
    untested = list[tuple[str, ...]]()
    good = list(state.good)
    bad = list(state.bad)
    for half in state.untested:
        if half not in measured:
            untested.append(half)
        elif measured[half]:
            good += half
        elif len(half) == 1:
            bad += half
        else:
            untested += _halves(half)
    return BisectionState(tuple(untested), tuple(good), tuple(bad))


def is_good(rate: float | None, fastest: float, expected: float | None = None) -> bool:
    """Whether a group's bus bandwidth is that of a good one; None for a group that could not exchange at all."""
    return rate is not None and rate >= SLOW * (fastest if expected is None else expected)


def _halves(nodes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    middle = (len(nodes) + 1) // 2
    return tuple(half for half in (nodes[:middle], nodes[middle:]) if half)
