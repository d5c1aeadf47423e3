"""Communication: how DDP sends gradients between the ranks; buckets and overlap are DDP's own."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket, ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Communication
from slipway.trainer.metrics.timeline import Timeline
from slipway.trainer.node.world import World
from slipway.trainer.step.local_updates import LocalUpdates
from slipway.trainer.step.powersgd import PowerSGD


def connect(
    model: nn.Module,
    called: Sequence[nn.Module],
    optimizer: Optimizer,
    config: Config,
    world: World,
    timeline: Timeline,
) -> PowerSGD | LocalUpdates | None:
    """Set up how this rank exchanges gradients or weights (`config.communication`); returns the part with a state.

    `called`: the modules that passes call, wrapped in DDP if replicas average gradients.
    """
    if config.communication.local_steps > 1:
        return LocalUpdates(model, optimizer, config.communication, world, config.run.steps)
    return attach(called, config.communication, config.run.seed, timeline)


def attach(called: Sequence[nn.Module], config: Communication, seed: int, timeline: Timeline) -> PowerSGD | None:
    """Give the DDP modules in `called` the communication hook of the configuration.

    Returns PowerSGD if it is used: a checkpoint must hold its state. The timeline records when each bucket of gradients
    is handed over to be reduced.
    """
    hooks = [
        _attach(module, config, seed, timeline) for module in called if isinstance(module, DistributedDataParallel)
    ]
    return hooks[0] if hooks else None  # PowerSGD needs the whole model on a rank, so there is one module at most


def _attach(ddp: DistributedDataParallel, config: Communication, seed: int, timeline: Timeline) -> PowerSGD | None:
    match config.compression:
        case "bf16":
            ddp.register_comm_hook(ddp.process_group, timeline.timed_hook(_in_bf16))
        case "fp16":
            ddp.register_comm_hook(ddp.process_group, timeline.timed_hook(fp16_compress_hook))
        case "powersgd":
            compression = PowerSGD(ddp.module, config.powersgd_rank, seed)
            ddp.register_comm_hook(None, timeline.timed_hook(compression.hook))
            return compression
        case "none":
            ddp.register_comm_hook(ddp.process_group, timeline.timed_hook(allreduce_hook))
    return None


def _in_bf16(group: ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """PyTorch's own hook. Without NCCL, DDP refuses it by its name, although gloo sums in bf16 too."""
    return bf16_compress_hook(group, bucket)
