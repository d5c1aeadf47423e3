"""Data parallelism with whole replicas (DDP), and when the ranks that share a batch reduce their gradients.

Replicas reduce gradients once a step, with its last micro-batch. Sharded weights (`trainer.step.parallel.sharded`)
reduce with each micro-batch, as there is no room for whole gradients; between groups of ranks (HSDP), with the last.
"""

import contextlib

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from trainer.start.divided import is_sharded


def replicate(called: nn.Module, devices: DeviceMesh) -> nn.Module:
    """The module to call instead of `called`, so that the ranks of the axis `replicas` average gradients."""
    group = devices["replicas"].get_group()
    # Without find_unused_parameters DDP would group its buckets anew after the first step of every process. Three ranks
    # or more would then sum the gradients of that step in another order than a process that was not interrupted.
    # Buffers are equal already: sending them around at every forward pass would only make ranks wait for each other.
    # So are the weights, which every rank draws or reads alike: sending rank 0's around would only cost memory.
    return DistributedDataParallel(
        called, process_group=group, find_unused_parameters=True, broadcast_buffers=False, init_sync=False
    )


def before_backward(called: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
    """The context of a micro-batch's forward and backward: only the `last` one of a step talks to all ranks."""
    if is_sharded(called):
        called.set_requires_all_reduce(last)
    elif isinstance(called, DistributedDataParallel) and not last:
        return called.no_sync()
    return contextlib.nullcontext()


def free_gathered_weights(called: nn.Module) -> None:
    """Free the whole weights that a forward pass gathered: without a backward pass, nothing else frees them."""
    for module in called.modules():
        if is_sharded(module):
            module.reshard()
