"""Scores: what an evaluation measures of a checkpoint, as it is written on disk; read without torch."""

import math
from dataclasses import dataclass

FORMAT = "slipway.scores/1"
HIGHEST_LOSS = 700.0
"""Nats; exp overflows at 710."""


@dataclass(frozen=True)
class Score:
    """One checkpoint on a split: a decoder on every token that has a predecessor in its shard, an encoder on the
    tokens that it does not see, a classifier on every picture."""

    checkpoint: str
    loss: float
    """Mean cross-entropy, nats per token or picture."""
    perplexity: float
    bits_per_byte: float
    """Bits to code one byte of the split's text: comparable between tokenizers. 0 where no text is coded: a model
    that sees what comes after, or pictures."""
    accuracy: float
    """Share of tokens or pictures whose most likely prediction is right."""
    tokens: int
    """How many were predicted, pictures too."""
    damaged: str = ""
    """Why the checkpoint has no figures (it could not be read, its loss is not a number); they are then 0."""

    @property
    def ranking(self) -> float:
        """What checkpoints are ranked by, the lower the better: bits per byte, or else the loss."""
        return self.bits_per_byte or self.loss


def perplexity(loss: float) -> float:
    """exp of the mean cross-entropy; a loss too high for a float's range counts as the highest that is not."""
    return math.exp(min(loss, HIGHEST_LOSS))


class Diverged(Exception):
    """A figure of a training is not a finite number any more."""


def finite(what: str, value: float) -> float:
    """`value`; raises Diverged unless it is a finite number."""
    if not math.isfinite(value):
        raise Diverged(f"{what} is {value}")
    return value
