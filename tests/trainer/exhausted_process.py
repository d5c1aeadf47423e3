"""A rank of tests/trainer/step/test_exhaustion.py: its memory is limited after a first small step.

Called with a configuration and the MiB that it may grow by. Says each event, and each step's loss.
"""

import dataclasses
import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.trainer.layout_process import VOCABULARY, sequences
from trainer.config import resolved
from trainer.config.shapes import Data
from trainer.loading.order import rank_slice
from trainer.node import world
from trainer.step.engine import Engine
from trainer.step.exhaustion import OutOfMemory


def main(path: Path, mebibytes: int) -> int:
    settings = resolved.load(path)
    with world.join(settings) as place:
        data = Data(vocabulary=VOCABULARY, length=settings.batch.length)
        engine = Engine(settings, place, data, lambda event, **fields: say(event=event, **fields))
        small = dataclasses.replace(settings, batch=dataclasses.replace(settings.batch, micro=1, sequences=place.size))
        step(Engine(small, place, data))
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + mebibytes * 2**20,) * 2)
        try:
            for _ in range(2):
                say(loss=step(engine))
        except OutOfMemory as error:
            say(ended=str(error))
            return 1
    return 0


def step(engine: Engine) -> float:
    batch, place = engine.config.batch, engine.world
    mine = rank_slice(batch.sequences, place.data_rank, place.data_size)
    places = np.arange(mine.start, mine.stop, dtype=np.uint64)
    sums = engine.accumulate(sequences(places, batch.length), places)
    engine.clip()
    engine.update(0.01)
    return sums.loss


def say(**fields: Any) -> None:
    """Print it in one write: the line of another rank may come between the two writes of an unbuffered `print`."""
    print(f"{json.dumps(fields)}\n", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
