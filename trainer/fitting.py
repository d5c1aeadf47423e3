"""Fitting: the micro-batch that the free memory takes, estimated before the first step, so that none has to fail.

Decoders' memory alone can be estimated (`trainer.memory`), where each rank has whole matrices and all layers; any
other training begins with the micro-batch that it asks for, and learns from running out (`trainer.exhaustion`).
"""

import os

import torch

from trainer import memory, usage
from trainer.config import Config
from trainer.shapes import Data, DecoderShape
from trainer.world import World


def micro_batch(config: Config, world: World, data: Data, asked: int) -> int:
    """`asked`, or the largest micro-batch that every rank has room for, 1 at least; all ranks call at once."""
    fits = largest(config, world, data, free_bytes(world.device))
    return max(1, min(asked, *world.gather(fits if fits is not None else asked)))


def largest(config: Config, world: World, data: Data, free: float) -> int | None:
    """The largest micro-batch within `free` bytes a rank; None where it cannot be estimated."""
    layout, shape = config.layout, config.model
    if not isinstance(shape, DecoderShape) or layout.tensor * layout.pipeline > 1:
        return None
    plan = memory.Plan(
        model=shape,
        vocabulary=data.vocabulary,
        length=data.length,
        micro=1,
        precision=config.run.precision,
        ranks=world.mesh.shards if layout.shard != "none" else world.size,
        sharded=layout.shard != "none",
        recompute=layout.activations == "recompute",
        device="cuda" if world.device.type == "cuda" else "cpu",
    )
    return memory.largest_micro(plan, free)


def free_bytes(device: torch.device) -> float:
    """What this rank may still take: of its GPU, or its part of the host's memory."""
    if device.type == "cuda":
        return memory.USABLE * torch.cuda.mem_get_info(device)[0]
    return usage.host_memory()["host_memory_free"] / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
