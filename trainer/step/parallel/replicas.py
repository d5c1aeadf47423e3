"""Data parallelism with whole replicas (DDP), and the micro-batches at which data-parallel ranks reduce gradients.

Replicas reduce gradients once a step, with its last micro-batch. Ranks with sharded weights
(`slipway.trainer.step.parallel.sharded`) reduce them with each micro-batch, because there is no room for whole
gradients; groups of such ranks (HSDP) reduce them with the last.
"""

import contextlib

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from slipway.trainer.start.divided import is_sharded


def replicate(called: nn.Module, devices: DeviceMesh) -> nn.Module:
    """DDP around `called`: the ranks of the axis `replicas` average gradients."""
    group = devices["replicas"].get_group()
    # Buffers are equal already: broadcasts at every forward pass would only make ranks wait for each other. So are the
    # weights, which every rank draws or reads alike: a broadcast by rank 0 would only cost memory.
    replica = DistributedDataParallel(called, process_group=group, broadcast_buffers=False, init_sync=False)
    _settle_buckets(replica)
    return replica


def _settle_buckets(replica: DistributedDataParallel) -> None:
    """Make DDP group its buckets before the first step, by a backward pass whose gradients are zero.

    DDP groups its buckets anew after a process's first backward pass, in the order in which gradients arrive. So three
    ranks or more would sum the gradients of that step in another order than ranks that were not interrupted. Here the
    gradients arrive in the reverse order of the parameters, as in a step, and no later step changes the buckets.
    """
    called = replica.module
    trained = [parameter for parameter in called.parameters() if parameter.requires_grad]
    own = called.__dict__.get("forward")
    called.forward = lambda: torch.stack([parameter.sum() * 0 for parameter in trained]).sum()
    try:
        torch.autograd.backward(replica())
    finally:
        del called.forward
        if own is not None:
            called.forward = own
    replica.zero_grad(set_to_none=True)


def before_backward(called: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
    """The context of a micro-batch's forward and backward pass: only the `last` one of a step reduces to all ranks."""
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
