"""The beginning of a training without a checkpoint: the weights that its configuration names, or drawn ones."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from slipway.trainer.config.resolved import Config
from slipway.trainer.data import contents
from slipway.trainer.loading.feed import Feed
from slipway.trainer.node.world import World
from slipway.trainer.start import initial
from slipway.trainer.start.initial import WeightSource


class Beginner(Protocol):
    """What takes the first weights, as `slipway.trainer.step.engine.Engine`."""

    def draw_weights(self) -> int: ...

    def load_weights(self, source: WeightSource) -> None: ...


def begin(engine: Beginner, config: Config, feed: Feed, world: World, record: Callable[..., None]) -> bool:
    """Give the model its first weights; whether they were given and not drawn. `record` writes to the ledger."""
    begun = time.time()
    if config.init is None:
        elements = engine.draw_weights()
        record("drawn", elements=elements, seconds=time.time() - begun)
        return False
    folder = Path(config.placement.init)
    tokenizer = contents.tokenizer(feed.snapshot)
    engine.load_weights(initial.source(config.init, folder, config.model, tokenizer, feed.data, world))
    record("initialised", digest=config.init.digest, folder=str(folder), seconds=time.time() - begun)
    return True
