"""Fitting: the micro-batch that the free memory allows, estimated before the first step, so that no step has to fail.

Only the memory of decoders can be estimated (`trainer.start.memory`), where each rank has whole matrices and all
layers. Any other training begins with its configured micro-batch, which shrinks when a step runs out of memory
(`trainer.step.exhaustion`).
"""

import os

import torch

from trainer.config.resolved import Config
from trainer.config.shapes import Data
from trainer.figures import usage
from trainer.models.decoder import DecoderShape
from trainer.node.world import World
from trainer.start import memory


def fitting_micro_batch(config: Config, world: World, data: Data, asked: int) -> int:
    """`asked`, or the largest micro-batch that every rank has room for, at least 1; all ranks call at once."""
    fits = largest_micro_batch(config, world, data, free_bytes(world.device))
    return max(1, min(asked, *world.gather(fits if fits is not None else asked)))


def largest_micro_batch(config: Config, world: World, data: Data, free: float) -> int | None:
    """The largest micro-batch within `free` bytes a rank; None where it cannot be estimated."""
    layout, shape = config.layout, config.model
    if not isinstance(shape, DecoderShape) or layout.tensor * layout.pipeline * layout.context > 1:
        return None
    plan = memory.MemoryPlan(
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
    """Bytes that this rank may still allocate: on its GPU, or its part of the host's memory."""
    if device.type == "cuda":
        return memory.USABLE * torch.cuda.mem_get_info(device)[0]
    return usage.host_memory()["host_memory_free"] / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
