"""A rank of tests/trainer/step/test_exhaustion.py: its memory is limited after a first small step.

Called with a configuration, the MiB that it may grow by, the ranks that are limited ("all" or numbers), the steps, and
before which of them the limit comes. Says each event, and each step's loss and the sum of the weights after it.
"""

import dataclasses
import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipway.trainer.config import resolved
from slipway.trainer.config.shapes import Data
from slipway.trainer.elastic import process_groups
from slipway.trainer.loading.order import rank_slice
from slipway.trainer.node.world import World
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.exhaustion import OutOfMemory
from tests.trainer.layout_process import VOCABULARY, sequences


def main(path: Path, mebibytes: int, limited: str, steps: int, limit_at: int) -> int:
    settings = resolved.load(path)
    with process_groups.join(settings) as world:
        data = Data(vocabulary=VOCABULARY, length=settings.batch.length)
        engine = Engine(settings, world, data, lambda event, **fields: say(world, event=event, **fields))
        small = dataclasses.replace(settings, batch=dataclasses.replace(settings.batch, micro=1, sequences=world.size))
        step(Engine(small, world, data))
        try:
            for number in range(steps):
                if number == limit_at and (limited == "all" or str(world.rank) in limited.split(",")):
                    current_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
                    resource.setrlimit(resource.RLIMIT_AS, (current_bytes + mebibytes * 2**20,) * 2)
                if number == limit_at == 0:
                    engine.probe()
                loss = step(engine)
                say(world, loss=loss, weights=weights(engine))
        except OutOfMemory as error:
            say(world, ended=str(error), kind=error.kind)
            return 1
    return 0


def step(engine: Engine) -> float:
    batch, world = engine.config.batch, engine.world
    span = rank_slice(batch.sequences, world.data_rank, world.data_size)
    numbers = np.arange(span.start, span.stop, dtype=np.uint64)

    def gradients() -> float:
        sums = engine.accumulate(sequences(numbers, batch.length), numbers)
        engine.clip()
        return world.all_reduce(sums.loss)[0]

    loss = engine.repeatable(gradients)
    engine.update(0.01)
    return loss


def weights(engine: Engine) -> float:
    """The sum of the magnitudes of this rank's weights."""
    parts = (parameter.to_local() if is_divided(parameter) else parameter for parameter in engine.model.parameters())
    return float(sum(tensor.detach().abs().double().sum() for tensor in parts) or torch.zeros(()))


def say(world: World, **fields: Any) -> None:
    """Print it in one write: the line of another rank may come between the two writes of an unbuffered `print`."""
    print(f"{json.dumps({'rank': world.rank, **fields})}\n", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])))
