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
class Hardware:
    """How ranks talk to each other and where they run; `trainer.fabric` has the profiles.

    A field that is left out has the profile's value; where that has none NCCL decides, as it mostly should. What the
    environment of a rank already says stands above all of it. Values and defaults as in the NCCL user guide's
    "Environment Variables".
    """

    profile: Literal["none", "ethernet", "h200-infiniband", "h100-8nic"] = "none"
    infiniband: bool | None = None
    """NCCL_IB_DISABLE. Said outright, NCCL fails where it would take to TCP, ten times slower, without a word."""
    adapters: str | None = None
    """NCCL_IB_HCA: prefixes of adapters (mlx5), `=` before exact ones (=mlx5_0,mlx5_1). NCCL then gives each GPU the
    nearest of them; a list keeps it from adapters that lead to storage."""
    gid_index: int | None = None
    """NCCL_IB_GID_INDEX. 3 is RoCE v2 over IPv4 on Mellanox adapters; of no effect on InfiniBand proper."""
    gpudirect_level: Literal["LOC", "PIX", "PXB", "PHB", "SYS"] | None = None
    """NCCL_NET_GDR_LEVEL: the longest way between adapter and GPU on which the adapter reads and writes the GPU's
    memory itself. PXB is through PCI switches and not through the processor, which is slower than a copy. By name:
    NCCL reads the number 5, often seen for it, as SYS, and 2 as PXB."""
    gpudirect_read: bool | None = None
    """NCCL_NET_GDR_READ: also to send, which leaves host memory out of the way of both directions."""
    cross_nic: Literal[0, 1, 2] | None = None
    """NCCL_CROSS_NIC. 0 keeps a ring on one rail, where each adapter of a node has a switch of its own; 1 uses any,
    where all of them share one; 2 prefers one rail."""
    buffer_bytes: int | None = None
    """NCCL_BUFFSIZE, of each channel to a peer; NCCL's own is 4 MiB. 16 MiB keeps 400 Gb/s adapters busy with
    gigabyte messages, and costs GPU memory."""
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None
    """NCCL_P2P_LEVEL. NVL: GPUs of a node reach each other over NVLink or not at all, and never slowly over PCI."""
    socket_interface: str | None = None
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, for meeting and for TCP: ib0 with InfiniBand, eth0 without. Left to
    guess on nodes with many interfaces, ranks have picked ones that do not reach each other."""
    algorithm: Literal["ring", "tree", "hierarchical", "sharp"] | None = None
    """NCCL_ALGO of all-reduce, with rings where it does not apply. hierarchical reduces in the node's NVLink switches
    and by a tree between nodes; sharp in the network's switches, and needs the CollNet plugin. NCCL chooses by size
    and topology, better than one choice for all: this is for comparing."""
    debug: Literal["WARN", "INFO"] | None = None
    """NCCL_DEBUG. INFO says which transports and rings were chosen; for setting up."""
    affinity: Literal["none", "numa"] | None = None
    """numa: a rank runs on the processors of its GPU's NUMA node, since crossing to another halves the bandwidth of
    copies to the GPU. Without a second node there is nothing to bind to."""
    timeout_seconds: float = 3600.0
    """How long a rank waits for the others in one exchange; it belongs to the process group, and there is no
    NCCL_TIMEOUT. As long as anything that one rank does for all may take, staging above all. It is not what finds a
    hang: the heartbeats do, within `recovery.no_progress_seconds`, so that it need not be lowered after the start."""

    def __post_init__(self) -> None:
        positive(self, "timeout_seconds")
        require(self.gid_index is None or self.gid_index >= 0, "gid_index", "expected 0 or more")
        require(self.buffer_bytes is None or self.buffer_bytes > 0, "buffer_bytes", "expected a number above 0")


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
