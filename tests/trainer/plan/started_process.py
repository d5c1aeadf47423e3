"""One rank of a real start: it draws its weights, takes a step, and prints what it held at both moments."""

import json
import os
import sys

import numpy as np

from slipway.trainer.elastic import process_groups
from slipway.trainer.plan import question as questions
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.microbatch import blank
from tests.trainer.plan.holdings import holdings_of


def main() -> None:
    question = questions.build(json.loads(sys.argv[1]))
    config = question.config()
    with process_groups.join(config) as world:
        engine = Engine(config, world, question.data, draws=False)
        begun = {**holdings_of(engine), "drawn": engine.draw_weights()}
        count = config.batch.sequences // world.data_size
        numbers = np.arange(count, dtype=np.uint64) + world.data_rank * count
        engine.accumulate(blank(question.data, count), numbers)
        engine.clip()
        with_gradients = holdings_of(engine)
        engine.update(1e-4)
        after = {**holdings_of(engine), "gradients": with_gradients["gradients"]}
        print(f"{json.dumps({'rank': world.rank, 'begun': begun, 'after': after})}\n", end="", flush=True)


if __name__ == "__main__":
    assert "RANK" in os.environ, "torchrun starts it"
    main()
