"""Communication: how gradients travel between the ranks of DDP; buckets and overlap are DDP's own."""

import torch
from torch import Tensor
from torch._C._distributed_c10d import GradBucket, ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.nn.parallel import DistributedDataParallel

from trainer.powersgd import PowerSGD
from trainer.sections import Communication
from trainer.timeline import Timeline


def attach(ddp: DistributedDataParallel, config: Communication, seed: int, timeline: Timeline) -> PowerSGD | None:
    """Let the gradients of `ddp` travel as the configuration says; returns what of it a checkpoint must hold.

    The timeline learns when each bucket of gradients goes to be reduced.
    """
    match config.compression:
        case "bf16":
            ddp.register_comm_hook(ddp.process_group, timeline.reducing(_in_bf16))
        case "fp16":
            ddp.register_comm_hook(ddp.process_group, timeline.reducing(fp16_compress_hook))
        case "powersgd":
            compression = PowerSGD(ddp.module, config.powersgd_rank, seed)
            ddp.register_comm_hook(None, timeline.reducing(compression.hook))
            return compression
        case "none":
            ddp.register_comm_hook(ddp.process_group, timeline.reducing(allreduce_hook))
    return None


def _in_bf16(group: ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """PyTorch's own hook, which DDP refuses by its name without NCCL, though gloo sums in bf16 too."""
    return bf16_compress_hook(group, bucket)
