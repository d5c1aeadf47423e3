"""A model laid over the ranks of a device mesh, in an order that matters: tensor, recomputation, compilation, data.

Names stay those of the whole model in every layout, so that a checkpoint of one can be read in any other.
"""

from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from trainer.config import Config
from trainer.models.model import Model
from trainer.parallel import blocks, data, eight_bits, tensor
from trainer.world import World

AXES = ("pipeline", "replicas", "shards", "tensor")


def meet(world: World) -> DeviceMesh | None:
    """The device mesh of the world; None for a world of one."""
    if world.size == 1:
        return None
    mesh = world.mesh
    sizes = (mesh.pipeline, mesh.replicas, mesh.shards, mesh.tensor)
    return init_device_mesh(world.device.type, sizes, mesh_dim_names=AXES)


def divide(model: Model, devices: DeviceMesh | None, config: Config) -> None:
    """Divide the model's matrices, and settle how they multiply and what blocks keep and run; all in place.

    Raises ValueError for a precision that the device does not have.
    """
    if devices is not None and devices["tensor"].size() > 1:
        tensor.divide(model, devices["tensor"])
    if config.run.precision == "fp8":
        eight_bits.multiply(model, next(model.parameters()).device)
    blocks.settle(model, config.layout)


def share(called: nn.Module, model: Model, devices: DeviceMesh | None, config: Config) -> nn.Module:
    """What to call instead of `called`, which calls `model`, so that data-parallel ranks share gradients or weights."""
    apart = config.communication.local_steps > 1
    if devices is None or devices["replicas"].size() * devices["shards"].size() == 1 or apart:
        return called
    return data.share(called, model, devices, config)
