"""The measure: the bytes of one rank of each stage at the peak of a step, by purpose. Plain data."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

PURPOSES = {
    "weights": "the rank's part of the weights, in fp32, and buffers",
    "gradients": "gradients that add up until the update",
    "optimizer": "the optimiser's state",
    "activations": "what the forward pass keeps for the backward pass",
    "logits": "the outputs, the loss, and their gradients",
    "gathered": "whole weights of the blocks that run (full shard)",
    "communication": "buffers of gradients and activations that travel",
    "update": "what the optimiser's update makes",
    "working": "what a pass holds only for a moment",
}


@dataclass(frozen=True, kw_only=True)
class StageMeasure:
    """One rank of one stage of the pipeline."""

    stage: int
    ranks: int
    """How many ranks have this stage."""
    blocks: int
    peaks: Mapping[str, Mapping[str, int]]
    """By the part of the step (the purpose of its new storages): the bytes of the highest peak, by `PURPOSES`."""
    parameters: int
    """Parameters of the whole stage, over all its ranks."""
    checkpoint: int
    """Bytes of the whole stage in a checkpoint: weights and the optimiser's state."""
    trained: int
    """Bytes of this rank's gradients, once all are there."""
    divided: int
    """Of this rank's weights, gradients and optimiser state, the bytes that more data-parallel ranks would divide."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes that a rank puts into collectives in one step, by the axis of the mesh."""

    @property
    def parts(self) -> Mapping[str, int]:
        """The bytes of the highest peak of all."""
        return max(self.peaks.values(), key=lambda parts: sum(parts.values()))

    @property
    def peak(self) -> int:
        return sum(self.parts.values())

    def with_copies(self, replicas: int) -> "StageMeasure":
        """The measure with DDP: its buckets are as large as the gradients, and travel once a step.

        See `gradient_as_bucket_view` in torch.nn.parallel.DistributedDataParallel.
        """
        size = self.trained
        peaks = {
            at: {**parts, "communication": parts.get("communication", 0) + size} for at, parts in self.peaks.items()
        }
        sent = {**self.sent, "replicas": round(2 * size * (replicas - 1) / replicas)}
        return dataclasses.replace(self, peaks=peaks, sent=sent)

    def minus(self, other: "StageMeasure") -> "StageMeasure":
        """The difference, number by number."""
        return self.plus(other, -1)

    def plus(self, other: "StageMeasure", times: float) -> "StageMeasure":
        """The sum with `times` the other, number by number."""
        return StageMeasure(
            stage=self.stage,
            ranks=self.ranks,
            blocks=_sum(self.blocks, other.blocks, times),
            peaks={at: _sums(self.peaks.get(at, {}), other.peaks.get(at, {}), times) for at in self.peaks},
            parameters=_sum(self.parameters, other.parameters, times),
            checkpoint=_sum(self.checkpoint, other.checkpoint, times),
            trained=_sum(self.trained, other.trained, times),
            divided=_sum(self.divided, other.divided, times),
            sent=_sums(self.sent, other.sent, times),
        )


def _sum(one: int, other: int, times: float) -> int:
    return round(one + times * other)


def _sums(one: Mapping[str, int], other: Mapping[str, int], times: float) -> dict[str, int]:
    return {name: _sum(one.get(name, 0), other.get(name, 0), times) for name in {**one, **other}}
