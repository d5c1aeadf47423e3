"""A model laid over the ranks of a device mesh, in an order that matters: tensor, recomputation, compilation, data.

Names stay those of the whole model in every layout, so a checkpoint of one layout can be read in any other. The modules
that divide weights (tensor parallelism, FSDP2) are imported only if a layout needs them: the import takes 0.8 s of CPU.
"""

import contextlib
from collections.abc import Iterator
from typing import TypeGuard

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from slipway.trainer.config.resolved import Config
from slipway.trainer.models.context_parallel import SequenceShare
from slipway.trainer.models.model import Model
from slipway.trainer.node.world import World
from slipway.trainer.step.parallel import blocks, eight_bits, replicas

AXES = ("pipeline", "replicas", "shards", "tensor")


def device_mesh(world: World) -> DeviceMesh | None:
    """The device mesh of the world; None for a world of one. All ranks call it at the same time."""
    if world.size == 1:
        return None
    mesh = world.mesh
    sizes = (mesh.pipeline, mesh.replicas, mesh.shards, mesh.tensor)
    with _opening(world):
        return init_device_mesh(world.device.type, sizes, mesh_dim_names=AXES)


def sequence_share(world: World) -> SequenceShare | None:
    """This rank's part of every sequence; None if it has whole ones. All ranks call it at the same time."""
    mesh = world.mesh
    if mesh.context == 1:
        return None
    with _opening(world):
        group, _ = dist.new_subgroups_by_enumeration(mesh.context_groups())  # type: ignore[no-untyped-call]
    return SequenceShare(mesh.context_rank(world.rank), mesh.context, group)


@contextlib.contextmanager
def _opening(world: World) -> Iterator[None]:
    """The context in which process groups are made."""
    opening = world.groups.opening() if world.groups else contextlib.nullcontext()
    with unset_fake_temporarily(), opening:  # a plan has fake tensors, but groups have real numbers of ranks
        yield


def groups(devices: DeviceMesh | None) -> list[ProcessGroup]:
    """The process groups of all axes of the mesh that this rank is in."""
    return [devices.get_group(axis) for axis in AXES] if devices else []


def check_device(config: Config, device: torch.device) -> None:
    """Raises ValueError for a precision that `device` does not have."""
    if config.run.precision == "fp8":
        eight_bits.check_device(device)


def divide(model: Model, devices: DeviceMesh | None, config: Config) -> None:
    """Divide the model's matrices; set their precision, recomputation and compilation. All in place."""
    narrow = config.run.precision == "fp8"
    if _divides_matrices(devices):
        from slipway.trainer.step.parallel import tensor

        own_length = model.stream_length // config.layout.context
        tensor.divide(model, devices["tensor"], own_length, eight_bits.product if narrow else F.linear)
    if narrow:
        eight_bits.multiply(model)
    blocks.set_forward(model, config.layout)


def complete_gradients(model: Model, devices: DeviceMesh | None) -> None:
    """Sum the gradients of which each tensor-parallel rank has a share; once a step, after its last micro-batch."""
    if _divides_matrices(devices):
        from slipway.trainer.step.parallel import tensor

        tensor.complete_gradients(model)


def take_length(model: Model, devices: DeviceMesh | None, length: int) -> None:
    """Divide sequences of `length` positions from now on: a causal model may get shorter ones."""
    if _divides_matrices(devices):
        from slipway.trainer.step.parallel.divided_stream import DividedStream

        assert isinstance(model.stream, DividedStream)
        model.stream.take_length(length)


def shard(called: nn.Module, model: Model, devices: DeviceMesh | None, config: Config) -> None:
    """Divide the weights of `called`, which calls `model`, between data-parallel ranks (FSDP), if the layout says so.

    Replicas of matrices that tensor parallelism divides are FSDP groups of one rank.
    """
    if not _data_ranks_talk(devices, config) or _replicates(devices, config):
        return
    from slipway.trainer.step.parallel import sharded

    sharded.shard(called, model, devices, config)


def replicate(called: nn.Module, devices: DeviceMesh | None, config: Config) -> nn.Module:
    """`called`, or DDP around it if the layout has replicas. Its weights must be allocated."""
    if not _data_ranks_talk(devices, config) or not _replicates(devices, config):
        return called
    return replicas.replicate(called, devices)


def copies_group(devices: DeviceMesh | None, config: Config) -> ProcessGroup | None:
    """The ranks that hold the same whole model as this one and get the same gradients; None if there are none."""
    if not _data_ranks_talk(devices, config) or not _replicates(devices, config):
        return None
    return devices["replicas"].get_group()


def _divides_matrices(devices: DeviceMesh | None) -> TypeGuard[DeviceMesh]:
    return devices is not None and devices["tensor"].size() > 1


def _data_ranks_talk(devices: DeviceMesh | None, config: Config) -> TypeGuard[DeviceMesh]:
    """Whether data-parallel ranks share gradients or weights at every step."""
    alone = config.communication.local_steps > 1
    return devices is not None and devices["replicas"].size() * devices["shards"].size() > 1 and not alone


def _replicates(devices: DeviceMesh, config: Config) -> bool:
    return config.layout.shard == "none" and devices["tensor"].size() == 1
