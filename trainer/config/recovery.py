"""The section `recovery` of a configuration: what a training does by itself about the faults that it finds.

It is not part of a training's identity: it may change during a training. What was left out is on record in the training
store, so that a changed answer never changes a step that was done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slipway.trainer.base.invalid import positive, require


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """The answers of one training."""

    policies: Mapping[str, str] = field(default_factory=dict)
    """The answer to a cause, by its name: see `slipway.trainer.record.causes.CHOICES`. Without one here, the usual one
    holds."""
    skips: int = 3
    """So many batches are left out in `skip_steps` steps at most; one more ends the training."""
    skip_steps: int = 1000
    spike_sigmas: float = 10.0
    """A loss is a spike where it is so many robust standard deviations above the median of the last ones; 0: never."""
    straggler_sigmas: float = 6.0
    """A rank is a straggler where its own part of a step takes so many robust standard deviations longer than that of
    the others, and half as long again; 0: never."""

    survivors: Literal["by_device", "stay", "leave"] = "by_device"
    """What ranks that are well do when another one is lost: end, so that all are started anew (leave), or stay in their
    processes and give it their state (stay): then no step is lost where a replica holds it. By device they stay on
    GPUs, where a process pays for its context, for the network and for compilation, and leave on CPUs."""

    drills: bool = False
    """Whether an operator may ask the running ranks for faults (`slipway chaos`). A drill does real
    harm; in a training whose weights matter it has no place."""

    def __post_init__(self) -> None:
        positive(self, "skip_steps")
        for each in ("skips", "spike_sigmas", "straggler_sigmas"):
            require(getattr(self, each) >= 0, each, "expected 0 or more")

    def stays(self, on_gpu: bool) -> bool:
        """Whether a rank that is well stays in its process."""
        return on_gpu if self.survivors == "by_device" else self.survivors == "stay"
