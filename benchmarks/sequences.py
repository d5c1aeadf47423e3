"""Documents and long sequences: what attention inside documents costs, and what ranks that share a sequence save.

``python -m benchmarks.sequences [--rounds N]`` prints one JSON line a metric. Reading and the step are measured on this
machine's processor, in turn; the bytes of a rank are planned, for Llama 3.1 8B over 8 GPUs with sequences of 131,072.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch, Communication, OptimizerConfig, Run
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import shards
from slipway.trainer.data.documents import Documented, DocumentedSequences
from slipway.trainer.data.sequences import Sequences
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.models.decoder.presets import PRESETS
from slipway.trainer.plan import stages
from slipway.trainer.plan.question import Question

TOKENS, LENGTH, DOCUMENT = 32_000_000, 1024, 600
"""Tokens that are read, of a sequence of the step, and of a document."""
LONG = Data(vocabulary=128_256, length=131_072)
SMALL = DecoderShape(layers=4, width=256, heads=8, kv_heads=4, hidden=704)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sequences")
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        plain, bounded = _in_turn(_readers(Path(folder)), rounds)
    _print("reading with the bounds of documents", "million tokens/s", "higher", TOKENS / bounded / 1e6,
           {"without": TOKENS / plain / 1e6}, 500)  # fmt: skip
    sequence, documents = _in_turn(_steps(), rounds)
    _print("forward and backward inside documents, beside attention over the sequence", "times", "lower",
           documents / sequence, {}, 1.1)  # fmt: skip
    alone, shared = (_planned(context) for context in (1, 8))
    _print("planned bytes of a rank that shares its sequence with 7 others", "GiB", "lower", shared,
           {"without": alone}, alone / 4)  # fmt: skip


def _in_turn(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """The median seconds of each, called in turn; the first round does not count."""
    seconds: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, taken in zip(calls, seconds, strict=True):
            begun = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begun)
    return [statistics.median(taken[1:]) for taken in seconds]


def _readers(folder: Path) -> list[Callable[[], Any]]:
    """A pass over all windows: without bounds, and with them."""
    texts = [np.zeros(DOCUMENT, np.uint16)] * (TOKENS // DOCUMENT)
    split = shards.TokenSplit(len(texts), TOKENS, TOKENS, (shards.write_shard(folder, texts, "uint16"),))
    tokenizer = shards.TokenizerRecord("0" * 64, 50_000, 0)
    snapshot = shards.TextSnapshot("zeros", "0" * 64, {}, {}, tokenizer, "uint16", {"train": split})
    plain = Sequences(folder, snapshot, "train", 2048)
    order = np.random.default_rng(0).permutation(len(plain)).astype(np.uint64)
    return [_reader(plain, order), _reader(DocumentedSequences(plain), order)]


def _reader(samples: Any, order: Any) -> Callable[[], None]:
    room = samples.empty(512)

    def read() -> None:
        for at in range(0, len(order) - 511, 512):
            samples.read(order[at : at + 512], room)

    return read


def _steps() -> list[Callable[[], Any]]:
    """A forward and backward pass over 4 sequences: over whole sequences, and inside their documents."""
    tokens = np.random.default_rng(0).integers(0, 2048, (4, LENGTH + 1)).astype(np.uint16)
    starts = np.arange(LENGTH + 1) // DOCUMENT * DOCUMENT
    rows = Documented(tokens, np.broadcast_to(starts, tokens.shape).astype(np.uint32))
    model, device = Decoder(SMALL, Data(vocabulary=2048, length=LENGTH)), torch.device("cpu")
    inputs, targets = model.prepare(rows, np.zeros(4, np.uint64), device)

    def step(*bounds: torch.Tensor) -> None:
        torch.autograd.backward(model.loss(model(inputs, *bounds), targets))

    return [step, lambda: step(*model.bounds(rows, device))]


def _planned(context: int) -> float:
    """GiB of a rank at the peak of a step."""
    question = Question(
        model=replace(PRESETS["llama-3.1-8b"].shape, attention="documents"),
        batch=Batch(sequences=8, length=LONG.length, micro=1),
        optimizer=OptimizerConfig(learning_rate=1e-4),
        run=Run(steps=1, precision="bf16"),
        layout=Layout(shard="full", activations="recompute", context=context),
        communication=Communication(),
        data=LONG,
        nodes=1,
        ranks_per_node=8,
    )
    return max(stage.peak for stage in stages.measure(question)) / 2**30


def _print(metric: str, unit: str, better: str, value: float, peers: dict[str, float], aim: float) -> None:
    rounded = {name: round(value, 3) for name, value in peers.items()}
    line = {"metric": metric, "unit": unit, "better": better, "ours": round(value, 3), "peers": rounded}
    print(json.dumps({"benchmark": "sequences", **line, "aim": round(aim, 3)}), flush=True)


if __name__ == "__main__":
    main()
