"""The section `recovery` of a configuration: what a training does by itself about faults."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The answers of one training."""

    survivors: Literal["auto", "stay", "leave"] = "auto"
    """What ranks that are well do when another one is lost: stay in their processes and give it their state (stay), or
    end, so that all are started anew (leave). auto: stay on GPUs, where a process pays for its context, for the network
    and for compilation."""

    def stays(self, on_gpu: bool) -> bool:
        """Whether a rank that is well stays in its process."""
        return self.survivors == "stay" or (self.survivors == "auto" and on_gpu)
