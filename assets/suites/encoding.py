"""Encodes a suite's examples in the tokens of one model, as a snapshot that the evaluator reads like any other.

A document is one example of the snapshot. A question becomes its prompt, followed by the prompt with each answer: the
loss of an answer is the difference of the two, because a causal model's view of the prompt does not depend on what
follows.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from slipway.assets.datasets.building.scratch_dir import writing_content
from slipway.assets.datasets.texts import tokenizer
from slipway.assets.datasets.texts.encoders import TextEncoding
from slipway.assets.suites.suite import Example, Suite
from slipway.trainer.data import shards
from slipway.trainer.data.shards import TextSnapshot, TokenSplit

SPLIT = "validation"


def encoded(durable: Path, suite: Suite, examples: Sequence[Example], model: TextSnapshot) -> TextSnapshot:
    """Write the suite to the durable tier in the tokens of `model`, the snapshot that a model was trained on.

    Equal inputs give the same snapshot. Raises ValueError if the tokenizer is gone.
    """
    speech = tokenizer.load(durable, model.tokenizer.sha256)
    dtype = shards.DTYPES[model.dtype]
    end = model.tokenizer.end_of_document
    bodies = [
        np.array([*tokens, end] if is_document else tokens, dtype)
        for example in examples
        for tokens, is_document in _sequences(example, speech)
    ]
    with writing_content(durable):
        return _written(durable, suite, examples, model, bodies)


def _written(durable: Path, suite: Suite, examples: Sequence[Example], model: TextSnapshot,
             bodies: list[npt.NDArray[Any]]) -> TextSnapshot:  # fmt: skip
    """Write a snapshot of these sequences of tokens."""
    shard = shards.write_shard(durable, bodies, model.dtype)
    split = TokenSplit(len(bodies), shard.tokens, sum(example.bytes for example in examples), (shard,))
    snapshot = dataclasses.replace(
        model,
        dataset=f"suite:{suite.name}",
        recipe=suite.sha256,
        source={"kind": "suite", "digest": suite.sha256, "description": suite.name},
        documents={"blake3": suite.table, "rows": suite.examples, "kept": suite.examples},
        splits={SPLIT: split},
    )
    shards.write_manifest(durable, snapshot)
    return snapshot


def sequences(example: Example) -> int:
    """The number of sequences of an example in the encoded snapshot."""
    return 1 + len(example.answers)


def _sequences(example: Example, speech: TextEncoding) -> Iterator[tuple[list[int], bool]]:
    """The tokens of each sequence, and whether an end-of-document token follows them."""
    text = speech.encode_ordinary(example.text)
    yield text, not example.answers
    for answer in example.answers:
        yield [*text, *speech.encode_ordinary(answer)], False
