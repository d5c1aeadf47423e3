"""Whether the layout of a training fits the nodes that it may have."""

from collections.abc import Iterator

from slipway.recipes.problems import RecipeFault
from slipway.recipes.training import ModelRecipe
from slipway.trainer.config import layout


def layout_faults(training: ModelRecipe) -> Iterator[RecipeFault]:
    """The fault of the layout at the smallest number of nodes that it does not fit, of those the training may have."""
    nodes, each = training.placement.nodes, training.placement.ranks_per_node
    for count in range(nodes.min, nodes.max + 1):
        try:
            layout.check(training, count * each, each)
        except layout.UnfitLayout as unfit:
            yield RecipeFault(tuple(unfit.field.split(".")), unfit.found, f"{unfit.expected}, with nodes: {count}")
            return
