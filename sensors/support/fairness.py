"""Fairness: which trainings that are to start one tick looks at, so that a flood of them holds up nobody. Pure.

A start takes a claim and a job, and a tick does one thing after the other: without a bound, a team that wants a
thousand trainings at once would have everybody's recovery wait for a thousand starts. So a tick looks at all trainings
that have begun, and then at `STARTS` others: the teams take turns, and in a team those come first whose last look is
longest ago.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

STARTS = 25
"""Looks at trainings that are to start, in one tick: some seconds of work, of the 25 that a tick may take."""


@dataclass(frozen=True)
class PendingStart:
    """A training that has not begun since it was wanted."""

    training: str
    team: str
    last_look: int
    """When it was looked at last, in ticks; 0 for never."""


def in_turn(starts: Sequence[PendingStart], max_starts: int) -> list[str]:
    """The ids of those whose turn it is, in their order.

    >>> in_turn([PendingStart("a-1", "a", 0), PendingStart("a-2", "a", 0), PendingStart("b-1", "b", 0)], 2)
    ['a-1', 'b-1']
    """
    teams: dict[str, list[PendingStart]] = {}
    for start in sorted(starts, key=lambda start: (start.last_look, start.training)):
        teams.setdefault(start.team, []).append(start)
    rounds = zip_longest(*teams.values())
    return [start.training for turn in rounds for start in turn if start is not None][:max_starts]
