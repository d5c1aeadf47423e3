"""Whether a tensor or a module is divided over the ranks, found without importing what divides them.

torch.distributed.tensor and torch.distributed.fsdp take 0.8 s of CPU to import. A rank imports them only where its
layout divides something, so the questions here are asked of attributes, not of classes.
"""

from typing import TYPE_CHECKING, TypeGuard

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
