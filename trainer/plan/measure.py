"""The measure: bytes that one rank of each stage takes at the peak of a step, by what they are for. Plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PURPOSES = {
    "weights": "the rank's part of the weights, in fp32, and buffers",
    "gradients": "gradients that add up until the update",
    "optimiser": "the optimiser's state",
    "activations": "what the forward pass keeps for the backward pass",
    "logits": "the outputs, the loss, and their gradients",
    "gathered": "whole weights of the blocks that run (full shard)",
    "communication": "buffers of gradients and activations that travel",
    "working": "what a pass holds only for a moment",
}


@dataclass(frozen=True, kw_only=True)
class StageMeasure:
    """One rank of one stage of the pipeline."""

    stage: int
    ranks: int
    """How many ranks have this stage."""
    blocks: int
    parts: Mapping[str, int]
    """Bytes at the peak, by `PURPOSES`; they sum up to the peak."""
    parameters: int
    """Parameters of the whole stage, over all its ranks."""
    checkpoint: int
    """Bytes of the whole stage in a checkpoint: weights and the optimiser's state."""
    divided: int
    """Of this rank's weights, gradients and optimiser state, the bytes that more data-parallel ranks would divide."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a rank gives to operations between ranks in one step, by the axis of the mesh."""

    @property
    def peak(self) -> int:
        return sum(self.parts.values())

    def minus(self, other: "StageMeasure") -> "StageMeasure":
        """The difference, number by number."""
        return self.plus(other, -1)

    def plus(self, other: "StageMeasure", times: float) -> "StageMeasure":
        """The sum with `times` the other, number by number."""
        return StageMeasure(
            stage=self.stage,
            ranks=self.ranks,
            blocks=_sum(self.blocks, other.blocks, times),
            parts=_sums(self.parts, other.parts, times),
            parameters=_sum(self.parameters, other.parameters, times),
            checkpoint=_sum(self.checkpoint, other.checkpoint, times),
            divided=_sum(self.divided, other.divided, times),
            sent=_sums(self.sent, other.sent, times),
        )


def _sum(one: int, other: int, times: float) -> int:
    return round(one + times * other)


def _sums(one: Mapping[str, int], other: Mapping[str, int], times: float) -> dict[str, int]:
    return {name: _sum(one.get(name, 0), other.get(name, 0), times) for name in {**one, **other}}
