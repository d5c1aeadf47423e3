"""One rank under DDP as a process of its own; it prints the peak of its allocated bytes."""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.trainer.start.test_memory import RANKS_PLAN, peak_bytes

if __name__ == "__main__":
    dist.init_process_group("gloo")
    # The least of three: on a busy machine the last bucket may still be sent when the next step begins.
    print(f"peak {min(peak_bytes(RANKS_PLAN, DistributedDataParallel) for _ in range(3))}", flush=True)
    dist.destroy_process_group()
