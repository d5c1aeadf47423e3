"""The sections of a configuration that say how and where a training runs, and decide no number beyond rounding.

They are not part of a training's identity: changed, the same training goes on from its newest checkpoint.
"""

from dataclasses import dataclass, field
from typing import Literal

from trainer.invalid import positive, require


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the model is laid over the ranks: pipeline x replicas x shards x tensor, the ranks of a node innermost."""

    shard: Literal["none", "full", "hybrid"] = "none"
    """Weights, gradients and optimiser state on every data-parallel rank (DDP), divided over all of them (FSDP2), or
    divided inside a group of ranks and replicated between groups (HSDP)."""
    shard_ranks: int = 0
    """hybrid: the ranks of a group; 0 for those of a node."""
    tensor: int = 1
    """Ranks that share each matrix."""
    pipeline: int = 1
    """Ranks that share the layers, each a consecutive part."""
    schedule: Literal["1f1b", "gpipe"] = "1f1b"
    """The order of the pipeline's micro-batches."""
    activations: Literal["keep", "selective", "recompute"] = "keep"
    """What the backward pass finds: everything, all but what is cheap to compute again, or each block's input alone."""
    compile: bool = False
    """Whether each block is compiled."""

    def __post_init__(self) -> None:
        positive(self, "tensor", "pipeline")
        require(self.shard_ranks >= 0, "shard_ranks", "expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class Keep:
    """When a tier is given a checkpoint, and which of them it keeps beside those that are referred to."""

    minutes: float
    """The longest time between two checkpoints there; 0 for none by the clock."""
    last: int
    """The newest ones."""
    every: int = 0
    """Those whose step is a multiple of this; 0 for none."""
    best: int = 0
    """Those of the lowest validation loss."""

    def __post_init__(self) -> None:
        require(self.minutes >= 0, "minutes", "expected 0 or more")
        positive(self, "last")
        for name in ("every", "best"):
            require(getattr(self, name) >= 0, name, "expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The tiers of checkpoints. The defaults of the intervals are the longest that are reasonable.

    On the node's NVMe the interval is the optimal one where that is shorter (Young 1974, Daly 2006), from the measured
    stall and rate of failures.
    """

    nvme: Keep = field(default_factory=lambda: Keep(minutes=15, last=2))
    durable: Keep = field(default_factory=lambda: Keep(minutes=30, last=5, best=1))
    backup: Keep = field(default_factory=lambda: Keep(minutes=120, last=5, best=1))
    """The object store of `placement.backup`, where there is one."""
    key_file: str = ""
    """A file with 64 hex digits: checkpoints are encrypted with this key. Empty: they are not."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What is recorded beyond the figures of each step."""

    profile_from: int = 0
    """The first step that PyTorch's profiler records; 0 for none but on a signal (SIGUSR2)."""
    profile_steps: int = 3
    """How many steps a profile covers."""
    window_steps: int = 50
    """Steps after which it is said what bounds them."""

    def __post_init__(self) -> None:
        require(self.profile_from >= 0, "profile_from", "expected 0 or more")
        positive(self, "profile_steps", "window_steps")


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where a training lies and runs. ``{node}`` in `nvme` is replaced by the name of the node."""

    store: str
    """The training's durable folder: specification, claims, commits, ledger, heartbeats."""
    durable: str
    """The durable tier: snapshots, shards, checkpoints."""
    nvme: str
    """The node's own fast disk, where the shards are staged."""
    backup: str = ""
    """The object store's URL (s3://bucket/prefix), a folder, or empty for none."""
    staging: Literal["before", "streaming"] = "before"
    """Whether all shards are staged before the first step, or while training goes on, in the order of their need."""
    init: str = ""
    """The folder of the initial weights, where the training has a section `init`."""
