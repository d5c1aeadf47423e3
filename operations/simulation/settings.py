"""What a simulation plays: the machines, how often and by what they fail, and what each part of a recovery costs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.base.invalid import positive, require

LLAMA_3 = {
    "GPU": (148, True),
    "GPU memory (HBM3)": (72, True),
    "software": (54, False),
    "network switch or cable": (35, False),
    "host maintenance": (32, True),
    "GPU memory (SRAM)": (19, True),
    "GPU system processor": (17, True),
    "network adapter": (7, True),
    "NCCL watchdog": (7, False),
    "silent data corruption": (6, True),
    "GPU thermal interface": (6, True),
    "other": (16, False),
}
"""Interruptions of 54 days on 16,384 GPUs by cause, and whether the node has to be replaced (Llama 3, arXiv:2407.21783,
table 5: 419 unexpected ones; the rarest causes are taken together)."""
LLAMA_3_PER_GPU_DAY = 466 / (54 * 16_384)
"""The same with the 47 planned interruptions."""
SILENT = ("NCCL watchdog", "silent data corruption")
"""Causes that no process dies of: they are found by a deadline, and not by a dead process."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One training on one cluster, and what it costs when something breaks. Times are seconds.

    The defaults of what recovery costs are those of `benchmarks/RESULTS.md`: power-off to the next step of the next
    incarnation took 26.4 s there, 20 s of which passed until the cluster had noticed.
    """

    gpus: int
    days: float = 54.0
    gpus_per_node: int = 8
    failures_per_gpu_day: float = LLAMA_3_PER_GPU_DAY
    causes: Mapping[str, tuple[float, bool]] = field(default_factory=lambda: LLAMA_3)
    """The weight of each cause, and whether it takes a node."""
    detect: float = 20.0
    """From a dead process to the moment at which somebody knows."""
    hang: float = 300.0
    """The same where no process dies."""
    restart: float = 7.0
    """From there to ranks that have met again."""
    restore: float = 30.0
    """Reading a checkpoint: 405B over NVMe of every node at some GB/s takes about half a minute."""
    warm_up: float = 30.0
    """The first step: compilation, caches, the allocator."""
    stall: float = 0.3
    """What a checkpoint costs the steps."""
    interval: float = 0.0
    """Seconds of steps between two checkpoints; 0 for Daly's optimum."""
    repair_hours: float = 24.0
    """The mean time until a broken node comes back."""
    spares: int = 0
    """Nodes that stand ready beside those of the training."""
    shrinks: bool = True
    """Whether the training goes on with fewer nodes when there is no spare; otherwise it waits."""
    replicas: int = 1
    """Groups of ranks that each hold a whole model: a failure stops its own group alone. With 1, all stop."""
    pause: float = 0.0
    """With replicas: for how long all others stop, when one leaves and when it returns."""

    def __post_init__(self) -> None:
        positive(self, "gpus", "days", "gpus_per_node", "failures_per_gpu_day", "stall", "repair_hours", "replicas")
        for name in ("detect", "hang", "restart", "restore", "warm_up", "interval", "spares", "pause"):
            found = getattr(self, name)
            require(math.isfinite(found) and found >= 0, name, "expected 0 or more")
        require(self.gpus >= self.gpus_per_node, "gpus", f"expected those of a node ({self.gpus_per_node}) or more")
        require(self.replicas * self.gpus_per_node <= self.gpus, "replicas", "expected a node or more for each of them")

    @property
    def nodes(self) -> int:
        return self.gpus // self.gpus_per_node

    @property
    def between(self) -> float:
        """The mean seconds between two failures while the training runs."""
        return 86_400 / (self.gpus * self.failures_per_gpu_day)
