"""The ends of a model of tokens: rows of the embedding, logits, and what they say of the targets; here on one rank.

Tensor parallelism divides these matrices over the vocabulary (`slipway.trainer.step.parallel.divided_vocabulary`): no
rank then has the logits of all tokens.
"""

import torch.nn.functional as F
from torch import Tensor, nn

NO_TARGET = -100
"""A target that counts in no loss."""


class Vocabulary:
    """All tokens on one rank."""

    def embedded(self, embedding: nn.Embedding, tokens: Tensor) -> Tensor:
        """The rows of tokens [batch, length], at this rank's positions of the stream: [batch, positions, width]."""
        rows: Tensor = embedding(tokens)
        return rows

    def logits(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """x [batch, positions, width] times `weight` transposed: [batch, length, tokens], the tokens of this rank."""
        return F.linear(x, weight, bias)

    def own(self, logits: Tensor) -> Tensor:
        """This rank's tokens of the logits of all."""
        return logits

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The sum of the cross-entropies of targets [batch, length], in nats and in fp32."""
        flat = logits.float().flatten(0, 1)
        return F.cross_entropy(flat, targets.flatten(), reduction="sum", ignore_index=NO_TARGET)

    def correct(self, logits: Tensor, targets: Tensor) -> Tensor:
        """How many targets no token has a higher logit than."""
        # amax takes a fifth of the time of argmax.
        there = targets.clamp(min=0).unsqueeze(-1)
        likeliest = logits.gather(-1, there).squeeze(-1) == logits.amax(-1)
        return (likeliest & (targets != NO_TARGET)).sum()
