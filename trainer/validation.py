"""Validation inside a run: the loss on the same samples of the validation split each time, divided between the ranks.

A mixture is measured dataset by dataset, with equally many samples of each. So the loss over all of them does not
depend on the weights of the mix, and trainings with different mixes compare.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipway.trainer.loading.feed import Feed
from slipway.trainer.loading.order import rank_slice
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine


@dataclass(frozen=True)
class Validated:
    """What a validation measured."""

    loss: float
    """Mean cross-entropy over all targets."""
    accuracy: float
    by_dataset: Mapping[str, float]
    """The loss on each dataset of a mixture; empty for a training on one dataset."""

    def fields(self) -> dict[str, Any]:
        """The fields of the ledger's event."""
        own = {"by_dataset": dict(self.by_dataset)} if self.by_dataset else {}
        return {"loss": self.loss, "accuracy": self.accuracy, **own}


def validate(engine: Engine, feed: Feed, world: World) -> Validated:
    """Measure the samples of `feed.measured`. All ranks call it at the same time and get the same result."""
    sums = list[Any]()
    for numbers in feed.measured.values():
        own_numbers = numbers[rank_slice(len(numbers), world.data_rank, world.data_size)]
        batch_sums = engine.measure(feed.held_out.read(own_numbers), own_numbers, len(numbers))
        sums += [batch_sums.losses, batch_sums.hits]
    totals = world.all_reduce(*sums)
    targets = [len(numbers) * engine.targets_per_sample for numbers in feed.measured.values()]
    losses = totals[0::2]
    hits = totals[1::2]
    by_dataset = {name: loss / count for name, loss, count in zip(feed.measured, losses, targets, strict=True)}
    return Validated(sum(losses) / sum(targets), sum(hits) / sum(targets), by_dataset if len(by_dataset) > 1 else {})
