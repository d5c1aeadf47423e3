"""Scores: what an evaluation measures of a checkpoint, as written on disk; read without torch."""

import math
from dataclasses import dataclass

from trainer.record import causes

FORMAT = "slipway.scores/1"
HIGHEST_LOSS = 700.0
"""Nats; exp overflows at 710."""


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

    @property
    def ranking(self) -> float:
        """The number that ranks checkpoints, the lower the better: bits per byte, or else the loss."""
        return self.bits_per_byte or self.loss


@dataclass(frozen=True)
class Scores:
    """What one run of the evaluator measured."""

    scores: tuple[Score, ...]


def perplexity(loss: float) -> float:
    """exp of the mean cross-entropy; a loss that is too high for the range of a float counts as `HIGHEST_LOSS`."""
    return math.exp(min(loss, HIGHEST_LOSS))


class Diverged(causes.Failure):
    """A figure of a training is no longer a finite number."""

    kind = causes.DIVERGED


def require_finite(what: str, value: float) -> float:
    """`value`; raises Diverged unless it is a finite number."""
    if not math.isfinite(value):
        raise Diverged(f"{what} is {value}")
    return value
