"""Data parallelism with weights divided between the ranks (FSDP2), or within groups of ranks (HSDP).

Weights travel in the type in which they are multiplied. The weights that make the residual stream are the exception:
the stream, to which the blocks add, is fp32 in every layout.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from slipway.trainer.config.resolved import Config
from slipway.trainer.models.model import Model
from slipway.trainer.step.precision import compute_type


def shard(called: nn.Module, model: Model, devices: DeviceMesh, config: Config) -> None:
    """Divide the weights of `called`, which calls `model`, block by block and in place."""
    mesh = devices["shards"] if config.layout.shard == "full" else devices["replicas", "shards"]
    policy = _precision_in_transit(config)
    blocks = list(model.blocks)
    for block in blocks:
        # The backward pass begins with the last block, so its weights stay after the forward pass. In a pipeline, the
        # weights of all blocks stay: micro-batches pass through a stage too quickly to gather weights for each.
        frees = config.layout.pipeline == 1 and block is not blocks[-1]
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=frees)
    # The weights outside the blocks, embedding and head, are needed from the beginning to the end of a step.
    if policy.param_dtype is None:
        fully_shard(called, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
        return
    uncast_policy = dataclasses.replace(policy, param_dtype=None)
    embedding, alone = _makes_stream(model)
    for module in embedding:
        fully_shard(module, mesh=mesh, mp_policy=uncast_policy, reshard_after_forward=False)
    fully_shard(called, mesh=mesh, mp_policy=uncast_policy if alone else policy, reshard_after_forward=False)
    if embedding:
        # Tensor-parallel ranks read their rows of an embedding without calling it, so FSDP would not gather it.
        called.register_forward_pre_hook(lambda *_: _gather(embedding))
    if model.recomputes and blocks:
        blocks[0].register_forward_pre_hook(_in_fp32)


def _makes_stream(model: Model) -> tuple[list[nn.Module], bool]:
    """The modules that make the residual stream, and whether parameters outside all modules make it too."""
    attributes = [getattr(model, name, None) for name in model.first_uses]
    modules = [
        attribute
        for attribute in attributes
        if isinstance(attribute, nn.Module) and any(True for _ in attribute.parameters())
    ]
    return modules, any(isinstance(attribute, nn.Parameter) for attribute in attributes)


def _gather(modules: list[nn.Module]) -> None:
    sharded: list[Any] = list(modules)
    for module in sharded:
        module.unshard()


def _in_fp32(_: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The stream in fp32: a convolution that makes it returns 16 bits."""
    return arguments[0].float(), *arguments[1:]


def _precision_in_transit(config: Config) -> MixedPrecisionPolicy:
    """Weights travel in the type that they are multiplied in; gradients as `communication.compression` says."""
    narrow = compute_type(config.run.precision)
    summed = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(config.communication.compression, torch.float32)
    return MixedPrecisionPolicy(param_dtype=narrow, reduce_dtype=summed, cast_forward_inputs=False)
