"""Scores: what an evaluation measures of a checkpoint, as it is written on disk; read without torch."""

from dataclasses import dataclass

FORMAT = "slipway.scores/1"


@dataclass(frozen=True)
class Score:
    """One checkpoint on every token of a split that has a predecessor in its shard."""

    checkpoint: str
    loss: float
    """Mean cross-entropy, nats per token."""
    perplexity: float
    bits_per_byte: float
    """Bits to code one byte of the split's text: comparable between tokenizers."""
    accuracy: float
    """Share of tokens whose most likely prediction is right."""
    tokens: int
    damaged: str = ""
    """Why the checkpoint could not be read; the figures are then 0."""
