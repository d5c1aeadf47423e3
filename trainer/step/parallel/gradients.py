"""The norm of gradients in any layout over the ranks, and their scaling in place."""

import torch
from torch import Tensor, nn

from slipway.trainer.node.world import World
from slipway.trainer.start.divided import is_divided


def squares(model: nn.Module, world: World) -> Tensor:
    """This rank's share of the square of the whole model's gradient: a scalar, to be summed over all ranks.

    Each rank adds the squares of its part, divided by the number of ranks that have the same part.
    """
    alike: dict[int, list[Tensor]] = {}
    for parameter in model.parameters():
        if parameter.grad is not None:
            alike.setdefault(_copies(parameter, world), []).append(_local(parameter.grad))
    total = torch.zeros((), device=world.device)
    for copies, gradients in alike.items():
        total += nn.utils.get_total_norm(gradients).square() / copies
    return total


def scale(model: nn.Module, factor: Tensor) -> None:
    """Multiply every gradient by this scalar."""
    gradients = [_local(parameter.grad) for parameter in model.parameters() if parameter.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if is_divided(gradient) else gradient


def _copies(parameter: nn.Parameter, world: World) -> int:
    """How many ranks have the same part of this parameter."""
    holders = world.size // world.mesh.pipeline
    if not is_divided(parameter):
        return holders
    mesh = parameter.device_mesh
    for ranks, placement in zip(mesh.shape, parameter.placements, strict=True):
        holders //= 1 if placement.is_replicate() else ranks
    return holders
