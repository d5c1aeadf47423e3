"""One rank of a real training on the CPU, as a process of its own: it prints the peak of its live tensors.

A rank that is alone is measured by PyTorch's profiler, which sees every allocation of the CPU's allocator: the plan's
own tracker has no part in it. Among several ranks the profiler misses what gloo's threads free, so there the tracker
counts the real tensors of the real ranks.
"""

import itertools
import json
import os
import sys

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from slipway.trainer.config.layout import micro_batches
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.elastic import process_groups
from slipway.trainer.models.model import Rows
from slipway.trainer.plan import question as questions
from slipway.trainer.plan.live_bytes import LiveBytes
from slipway.trainer.plan.question import Question
from slipway.trainer.step.engine import Engine

STEPS = 2


def main() -> None:
    question = questions.build(json.loads(sys.argv[1]))
    if question.ranks == 1:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            _train(question)
        events = profiler.profiler.kineto_results.events()
        changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
        peak = max(itertools.accumulate(change for _, change in changes))
    else:
        with LiveBytes(fake=False) as live:
            _train(question)
        peak = max(sum(parts.values()) for parts in live.peaks().values())
    print(f"peak {peak}", flush=True)


def _train(question: Question) -> None:
    torch.set_num_threads(1)
    # oneDNN takes memory beside tensors for its convolutions, on a CPU alone.
    torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
    config = question.config()
    with process_groups.join(config) as world:
        engine = Engine(config, world, question.data)
        count = micro_batches(config.batch.sequences, config.batch.micro, world.data_size)
        samples = count * -(-config.batch.sequences // world.data_size // count)
        for step in range(STEPS):
            engine.accumulate(_rows(question, samples), np.arange(samples, dtype=np.uint64) + step * samples)
            engine.clip()
            engine.update(1e-4)


def _rows(question: Question, count: int) -> Rows:
    random, data = np.random.default_rng(0), question.data
    if any(data.picture):
        pixels = random.integers(0, 256, (count, *data.picture), np.uint8)
        return Labelled(pixels, random.integers(0, data.classes, count).astype(np.uint32))
    return random.integers(0, data.vocabulary, (count, data.length + 1)).astype(np.uint16)


if __name__ == "__main__":
    assert "RANK" in os.environ, "torchrun starts it"
    main()
