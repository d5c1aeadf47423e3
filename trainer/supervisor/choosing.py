"""Choosing: which of the nodes that have arrived take part in a generation. Pure.

As many as the layout has a mesh for: replicas of several nodes are whole or not there. The nodes of a replica that lost
one of its own stay out first, as the whole replicas hold every part of the state; they wait, and take part again when
the number is whole.
"""

from collections.abc import Sequence

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config import layout
from slipway.trainer.config.layout import LayoutSettings
from slipway.trainer.node.generations import Arrival, Members


def chosen(
    arrived: Sequence[Arrival], before: Members | None, most: int, settings: LayoutSettings
) -> tuple[Arrival, ...]:
    """Those that take part, in the order of `arrived`; all, up to `most`, where the layout fits no number of them.

    before: the generation before; None at the start.
    """
    count = layout.fitting(settings, arrived[0].ranks, min(most, len(arrived))) or min(most, len(arrived))
    here = {each.node for each in arrived}
    broken = _broken(before, here, settings) if before else set[str]()
    kept = sorted(range(len(arrived)), key=lambda place: (arrived[place].node in broken, place))[:count]
    return tuple(arrived[place] for place in sorted(kept))


def _broken(before: Members, here: set[str], settings: LayoutSettings) -> set[str]:
    """The nodes of replicas that are no longer whole, with those that have not been a part of one."""
    try:
        mesh = layout.check(settings, before.world, before.nodes[0].ranks)
    except Invalid:
        return set()
    replicas = dict[str, set[int]]()
    for node in before.nodes:
        first = before.first_rank(node.node)
        ranks = range(first, first + node.ranks)
        replicas[node.node] = {mesh.gradient_rank(rank) // mesh.shards for rank in ranks}
    lost = set[int]().union(*(each for node, each in replicas.items() if node not in here))
    return {node for node, each in replicas.items() if each & lost} | (here - replicas.keys())
