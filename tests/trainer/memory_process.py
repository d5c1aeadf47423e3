"""One rank under DDP, as a process of its own: prints the most bytes it had allocated at a time."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.test_memory import RANKS_PLAN, peak_bytes

if __name__ == "__main__":
    dist.init_process_group("gloo")
    print(f"peak {peak_bytes(RANKS_PLAN, DistributedDataParallel)}", flush=True)
    dist.destroy_process_group()
