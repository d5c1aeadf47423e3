"""Data parallelism: ranks that share a batch, with whole replicas (DDP) or with weights divided between them (FSDP2).

Replicas reduce gradients once a step, with its last micro-batch. Divided weights reduce with each micro-batch, as
whole gradients are what there is no room for; between groups of ranks (HSDP), with the last.
"""

import contextlib

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from trainer.config import Config
from trainer.models.model import Model
from trainer.precision import compute_type


def share(called: nn.Module, model: Model, devices: DeviceMesh, config: Config) -> nn.Module:
    """What to call instead of `called`, which calls `model`; divided weights are laid out in place.

    Replicas of matrices that are divided already (tensor parallelism) are FSDP groups of one rank.
    """
    if config.layout.shard == "none" and devices["tensor"].size() == 1:
        group = devices["replicas"].get_group()
        # Else DDP would group its buckets anew after the first step of every process, and three ranks or more would
        # sum the gradients of that step in another order than one that was not interrupted.
        # Buffers are alike already: sent around at every forward pass they would only make ranks wait for each other.
        return DistributedDataParallel(
            called, process_group=group, find_unused_parameters=True, broadcast_buffers=False
        )
    whole = config.layout.shard == "full"
    mesh = devices["shards"] if whole else devices["replicas", "shards"]
    # In a pipeline, micro-batches follow one another through a stage too closely to gather its weights for each.
    again = False if config.layout.pipeline > 1 else None
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=_travelling(config), reshard_after_forward=again)
    fully_shard(called, mesh=mesh, reshard_after_forward=again)
    return called


def before_backward(called: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
    """The context of a micro-batch's forward and backward: only the `last` one of a step talks to all ranks."""
    if isinstance(called, FSDPModule):
        called.set_requires_all_reduce(last)
    elif isinstance(called, DistributedDataParallel) and not last:
        return called.no_sync()
    return contextlib.nullcontext()


def divided_again(called: nn.Module) -> None:
    """Let go of whole weights that a forward pass left behind: without a backward pass, nothing else does."""
    for module in called.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _travelling(config: Config) -> MixedPrecisionPolicy:
    """Weights of blocks travel in the type that they are multiplied in, and gradients are summed in fp32."""
    narrow = compute_type(config.run.precision)
    return MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32, cast_forward_inputs=False)
