"""Scores: an evaluation's measurements of a checkpoint, in their format on disk; read without torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from slipway.trainer.record import causes

FORMAT = "slipway.scores/1"
HIGHEST_LOSS = 700.0
"""Nats; exp overflows at 710."""


@dataclass(frozen=True)
class ExampleSums:
    """What was found about each example alone: documents in their order, or samples. All three have one entry for each.

    An example is a document, of a model that reads texts from the left; of others it is a sample of the split.
    """

    losses: tuple[float, ...]
    """Nats, summed over the example's targets."""
    predicted: tuple[int, ...]
    """How many targets that were."""
    right: tuple[int, ...]
    seconds: float
    """How long the ranks took for all of them."""
    confidence: tuple[tuple[int, float, int], ...] = ()
    """How sure the model was: by equal parts of the probability that it gave to its likeliest prediction, how many
    predictions, the sum of that probability, and how many were right. Empty where ranks share the vocabulary."""


@dataclass(frozen=True)
class Score:
    """One checkpoint on a split: a decoder on every token that has a predecessor in its shard, an encoder on the masked
    tokens, a classifier on every picture."""

    checkpoint: str
    loss: float
    """Mean cross-entropy, nats per token or picture."""
    perplexity: float
    bits_per_byte: float
    """Bits to code one byte of the split's text: comparable between tokenizers. 0 for a model that does not code
    text: an encoder, which sees later tokens too, or a classifier of pictures."""
    accuracy: float
    """Share of tokens or pictures whose most likely prediction is right."""
    tokens: int
    """How many tokens or pictures were predicted."""
    damaged: str = ""
    """Why the checkpoint has no figures (it could not be read, or its loss is not a number); the figures are 0 then."""
    examples: ExampleSums | None = None
    """Each example alone, if requested: the figures above then follow from these."""
    by_dataset: Mapping[str, float] = field(default_factory=dict)
    """The loss on each dataset of a mixture; empty for a snapshot of one dataset."""

    @property
    def coded(self) -> dict[str, float]:
        """The bits per byte by that name; nothing of a model that does not code text."""
        return {"bits_per_byte": self.bits_per_byte} if self.bits_per_byte else {}

    @property
    def ranking(self) -> float:
        """The number that ranks checkpoints, the lower the better: bits per byte, or else the loss."""
        return self.bits_per_byte or self.loss


@dataclass(frozen=True)
class Scores:
    """The measurements of one run of the evaluator."""

    scores: tuple[Score, ...]


class PartialSums(Protocol):
    """The sums over a part of an example."""

    @property
    def loss(self) -> float: ...
    @property
    def right(self) -> int: ...
    @property
    def predicted(self) -> int: ...
    @property
    def confidence(self) -> tuple[tuple[int, float, int], ...]: ...


def of_examples(
    owners: Sequence[int], parts: Sequence[PartialSums], seconds: float, calibrated: int | None = None
) -> ExampleSums:
    """The sums of each example, from those of its parts; `owners` are the examples of the parts, from 0 on.

    The confidences are those of the first `calibrated` examples; of all if None.
    """
    count = max(owners, default=-1) + 1
    losses = [0.0] * count
    predicted = [0] * count
    right = [0] * count
    for owner, part in zip(owners, parts, strict=True):
        losses[owner] += part.loss
        predicted[owner] += part.predicted
        right[owner] += part.right
    first = count if calibrated is None else calibrated
    confidences = [part.confidence for owner, part in zip(owners, parts, strict=True) if owner < first]
    columns = zip(*confidences, strict=True) if all(confidences) else ()  # empty where ranks share the vocabulary
    sure = tuple(
        (
            sum(example[0] for example in column),
            sum(example[1] for example in column),
            sum(example[2] for example in column),
        )
        for column in columns
    )
    return ExampleSums(tuple(losses), tuple(predicted), tuple(right), seconds, sure)


def of_datasets(owners: Sequence[str], parts: Sequence[PartialSums]) -> dict[str, float]:
    """The mean loss on each dataset, from the parts of a split and their datasets; empty if there is only one."""
    names = list(dict.fromkeys(owners))
    if len(names) < 2:
        return {}
    pairs = list(zip(owners, parts, strict=True))
    predicted = {name: sum(part.predicted for owner, part in pairs if owner == name) for name in names}
    return {
        name: sum(part.loss for owner, part in pairs if owner == name) / max(1, count)
        for name, count in predicted.items()
    }


def perplexity(loss: float) -> float:
    """exp of the mean cross-entropy; a loss that is too high for the range of a float counts as `HIGHEST_LOSS`."""
    return math.exp(min(loss, HIGHEST_LOSS))


class Diverged(causes.Failure):
    """A figure of a training is no longer finite."""

    kind = causes.DIVERGED


def require_finite(what: str, value: float) -> float:
    """`value`; raises Diverged unless it is a finite number."""
    if not math.isfinite(value):
        raise Diverged(f"{what} is {value}")
    return value
