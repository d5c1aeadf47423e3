"""Placement: which part of a whole tensor this rank holds."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """A box of a whole tensor: where it begins, and how large it is, in each dimension."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


def local_part(tensor: Tensor) -> tuple[Tensor, Part]:
    """This rank's elements of `tensor`, which share its memory, and the part of the whole that they are."""
    if not hasattr(tensor, "device_mesh"):
        return tensor.detach(), Part((0,) * tensor.dim(), tuple(tensor.shape))
    # Imported only here: a rank that divides nothing does not pay for the import.
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    divided: DTensor = tensor  # type: ignore[assignment]
    assert isinstance(divided, DTensor)
    sizes, offsets = compute_local_shape_and_global_offset(divided.shape, divided.device_mesh, divided.placements)
    local = divided.to_local().detach()
    assert tuple(local.shape) == tuple(sizes)
    return local, Part(tuple(offsets), tuple(sizes))


def cut(whole: Tensor, part: Part) -> Tensor:
    """The elements of `whole` that are in `part`; nothing is copied."""
    for dimension, (offset, size) in enumerate(zip(part.offsets, part.sizes, strict=True)):
        whole = torch.narrow(whole, dimension, offset, size)
    return whole
