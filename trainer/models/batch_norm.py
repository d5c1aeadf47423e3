"""Batch normalisation over all data-parallel ranks, on GPUs and on CPUs.

On GPUs it is torch's, whose kernels do not take tensors of the host; this module computes the same for these. Ranks'
shares are weighted by their sizes, so uneven and empty shares give the result of one rank that has all samples.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def batch_norm(features: int) -> nn.Module:
    """Batch normalisation over all data-parallel ranks, for the device of this process."""
    return nn.SyncBatchNorm(features) if torch.cuda.is_available() else BatchNorm(features)


class BatchNorm(nn.BatchNorm2d):
    """Normalises by the statistics of one micro-batch over all ranks of `process_group`."""

    process_group: dist.ProcessGroup | None = None
    """The data-parallel ranks, as in nn.SyncBatchNorm; None for all ranks."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or not dist.is_initialized():
            out: Tensor = super().forward(input)
            return out
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        assert self.momentum is not None
        mean, variance, count = _statistics(input.detach().float(), self.process_group)
        with torch.no_grad():
            unbiased = variance * (count / (count - 1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
            self.num_batches_tracked.add_(1)
        scale = torch.rsqrt(variance + self.eps)
        statistics = (mean, scale, count, self.process_group)
        normalized: Tensor = _Normalize.apply(input, self.weight, self.bias, *statistics)  # type: ignore[no-untyped-call]
        return normalized


class _Normalize(torch.autograd.Function):
    """(input - mean) * scale * weight + bias, where mean and scale depend on the inputs of all ranks."""

    @staticmethod
    def forward(
        ctx: Any, input: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, count: float, group: Any
    ) -> Tensor:
        ctx.save_for_backward(input, weight, mean, scale)
        ctx.count = count
        ctx.group = group
        return torch.addcmul(_spread(bias), _normalized(input, mean, scale), _spread(weight)).to(input.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """Ioffe and Szegedy 2015 (arXiv:1502.03167), section 3, with its two sums over all ranks.

        The gradients of weight and bias are this rank's part, as those of all parameters.
        """
        input, weight, mean, scale = ctx.saved_tensors
        gradient = gradients[0].float()
        normalized = _normalized(input, mean, scale)
        own = torch.stack([_sum(gradient), _sum(gradient * normalized)])
        total = own.clone()
        dist.all_reduce(total, group=ctx.group)
        shift, stretch = (_spread(statistic) for statistic in total / ctx.count)
        through = (gradient - shift - normalized * stretch) * _spread(weight * scale)
        return through.to(input.dtype), own[1], own[0], None, None, None, None


def _statistics(input: Tensor, group: Any) -> tuple[Tensor, Tensor, float]:
    """Mean and variance of each channel over all ranks, and the number of values in each.

    They are combined from each rank's mean and squared deviations, after Chan, Golub and LeVeque (1979).
    """
    count = input.numel() // input.shape[1]
    mean = _sum(input) / max(count, 1)
    deviations = _sum((input - _spread(mean)) ** 2)
    own = torch.cat([mean, deviations, torch.tensor([float(count)])]).double()
    ranks = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(ranks, own, group=group)
    means, squares, counts = torch.tensor_split(torch.stack(ranks), [len(mean), 2 * len(mean)], 1)
    total = counts.sum()
    overall = (counts * means).sum(0) / total
    variance = (squares + counts * (means - overall) ** 2).sum(0) / total
    return overall.float(), variance.float(), float(total)


def _normalized(input: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    return (input.float() - _spread(mean)) * _spread(scale)


def _sum(x: Tensor) -> Tensor:
    """The sum over all dimensions but the channels."""
    return x.sum((0, 2, 3))


def _spread(x: Tensor) -> Tensor:
    """A value for each channel, as [1, channels, 1, 1]."""
    return x[None, :, None, None]
