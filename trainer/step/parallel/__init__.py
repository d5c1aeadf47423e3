"""A model laid over the ranks of a device mesh, in an order that matters: tensor, recomputation, compilation, data.

Names stay those of the whole model in every layout, so that a checkpoint of one can be read in any other. What divides
weights (tensor parallelism, FSDP2) is imported only where a layout asks for it, as it takes 0.8 s of CPU.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config.resolved import Config
from trainer.models.model import Model
from trainer.node.world import World
from trainer.step.parallel import blocks, eight_bits, replicas

AXES = ("pipeline", "replicas", "shards", "tensor")


def device_mesh(world: World) -> DeviceMesh | None:
    """The device mesh of the world; None for a world of one. All ranks call at once."""
    if world.size == 1:
        return None
    mesh = world.mesh
    sizes = (mesh.pipeline, mesh.replicas, mesh.shards, mesh.tensor)
    return init_device_mesh(world.device.type, sizes, mesh_dim_names=AXES)


def divide(model: Model, devices: DeviceMesh | None, config: Config) -> None:
    """Divide the model's matrices, and set how they multiply and what its blocks keep and run; all in place.

    Raises ValueError for a precision that the device does not have.
    """
    if devices is not None and devices["tensor"].size() > 1:
        from trainer.step.parallel import tensor

        tensor.divide(model, devices["tensor"])
    if config.run.precision == "fp8":
        eight_bits.multiply(model, next(model.parameters()).device)
    blocks.set_forward(model, config.layout)


def join_data_ranks(called: nn.Module, model: Model, devices: DeviceMesh | None, config: Config) -> nn.Module:
    """The module to call instead of `called`, which calls `model`: data-parallel ranks share gradients or weights.

    Replicas of matrices that are divided already (tensor parallelism) are FSDP groups of one rank.
    """
    alone = config.communication.local_steps > 1
    if devices is None or devices["replicas"].size() * devices["shards"].size() == 1 or alone:
        return called
    if config.layout.shard == "none" and devices["tensor"].size() == 1:
        return replicas.replicate(called, devices)
    from trainer.step.parallel import sharded

    sharded.shard(called, model, devices, config)
    return called
