"""Whether a tensor or a module is divided over the ranks, and which part of it this rank holds.

The import of torch.distributed.tensor and torch.distributed.fsdp takes 0.8 s of CPU. A rank imports them only if its
layout divides something, so the functions here check attributes and not classes.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


def is_divided(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether `tensor` is a DTensor."""
    return hasattr(tensor, "device_mesh")


def is_sharded(module: nn.Module) -> "TypeGuard[FSDPModule]":
    """Whether FSDP2 has divided the weights of `module`."""
    return hasattr(module, "set_requires_all_reduce")


@dataclass(frozen=True)
class Part:
    """A box of a whole tensor: its offset and size in each dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def local_part(tensor: Tensor) -> tuple[Tensor, Part]:
    """This rank's elements of `tensor`, which share its memory, and their box in the whole tensor."""
    if not hasattr(tensor, "device_mesh"):
        return tensor.detach(), Part((0,) * tensor.dim(), tuple(tensor.shape))
    # Imported here and not at the start: a rank that divides nothing does not need it.
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    divided: DTensor = tensor  # type: ignore[assignment]
    assert isinstance(divided, DTensor)
    sizes, offsets = compute_local_shape_and_global_offset(divided.shape, divided.device_mesh, divided.placements)
    local = divided.to_local().detach()
    assert tuple(local.shape) == tuple(sizes)
    return local, Part(tuple(offsets), tuple(sizes))


def cut(tensor: Tensor, part: Part) -> Tensor:
    """The elements of `tensor` in `part`, as a view."""
    for dimension, (offset, size) in enumerate(zip(part.offsets, part.sizes, strict=True)):
        tensor = torch.narrow(tensor, dimension, offset, size)
    return tensor
