"""Data parallelism with weights divided between the ranks (FSDP2), or within groups of ranks (HSDP)."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from trainer.config.resolved import Config
from trainer.models.model import Model
from trainer.step.precision import compute_type


def shard(called: nn.Module, model: Model, devices: DeviceMesh, config: Config) -> None:
    """Divide the weights of `called`, which calls `model`, block by block and in place."""
    mesh = devices["shards"] if config.layout.shard == "full" else devices["replicas", "shards"]
    # In a pipeline, micro-batches follow one another through a stage too closely to gather its weights for each.
    again = False if config.layout.pipeline > 1 else None
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=_precision_in_transit(config), reshard_after_forward=again)
    fully_shard(called, mesh=mesh, reshard_after_forward=again)


def _precision_in_transit(config: Config) -> MixedPrecisionPolicy:
    """Weights of blocks travel in the type that they are multiplied in, and gradients are summed in fp32."""
    narrow = compute_type(config.run.precision)
    return MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=torch.float32, cast_forward_inputs=False)
