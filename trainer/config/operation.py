"""The sections of a configuration that say how and where a training runs; they change its numbers by rounding alone.

They are not part of a training's identity: after a change of its recipe, the same training goes on from its newest
checkpoint, and has the new values from its next incarnation on. What `recovery` left out is on record in the training
store, so that a changed answer never changes a step that was done.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slipway.trainer.base.invalid import positive, require


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How the model is divided over the ranks: pipeline x replicas x shards x tensor, the ranks of a node innermost.

    Ranks that share a sequence are neighbours among the replicas or shards.
    """

    shard: Literal["none", "full", "hybrid"] = "none"
    """Where weights, gradients and optimiser state lie: none, whole on every data-parallel rank (DDP); full, divided
    over all of them (FSDP2); hybrid, divided inside a group of ranks and replicated between groups (HSDP)."""
    shard_ranks: int = 0
    """hybrid: the ranks of a group; 0 for the ranks of a node."""
    tensor: int = 1
    """Ranks that share each matrix."""
    context: int = 1
    """Ranks that share each sequence: for sequences whose activations are too large for one rank."""
    pipeline: int = 1
    """Ranks that share the layers, each a consecutive part."""
    schedule: Literal["1f1b", "gpipe", "interleaved"] = "1f1b"
    """The order of the pipeline's micro-batches. interleaved: 1f1b over several stages of each rank."""
    stages_per_rank: int = 1
    """interleaved: the stages of each rank of the pipeline, 2 or more: rank r of P has the stages r, r + P, and so on.
    A rank then waits for others a part of the time, 1 / stages_per_rank of what it would wait in 1f1b."""
    activations: Literal["keep", "selective", "recompute"] = "keep"
    """What the forward pass keeps for the backward pass: everything (keep), all but what is cheap to compute again
    (selective), or the input of each block alone (recompute)."""
    compile: bool = False
    """Whether each block is compiled."""

    def __post_init__(self) -> None:
        positive(self, "tensor", "context", "pipeline", "stages_per_rank")
        require(self.shard_ranks >= 0, "shard_ranks", "expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class RetentionRule:
    """When a tier gets a checkpoint, and which checkpoints it keeps beside those that are referred to."""

    minutes: float
    """The longest time between two checkpoints there; 0 for no limit in time."""
    last: int
    """How many of the newest it keeps."""
    every: int = 0
    """It keeps those whose step is a multiple of this; 0 for none."""
    best: int = 0
    """How many of those with the lowest validation loss it keeps."""

    def __post_init__(self) -> None:
        require(self.minutes >= 0, "minutes", "expected 0 or more")
        positive(self, "last")
        for name in ("every", "best"):
            require(getattr(self, name) >= 0, name, "expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class Storage:
    """The tiers of checkpoints. The defaults of the intervals are the longest that are reasonable.

    On the node's NVMe and on the durable tier the optimal interval holds where it is shorter (Young 1974, Daly 2006):
    it follows from the measured cost of a save and the measured rate at which machines fail.
    """

    nvme: RetentionRule = field(default_factory=lambda: RetentionRule(minutes=15, last=2))
    durable: RetentionRule = field(default_factory=lambda: RetentionRule(minutes=30, last=5, best=1))
    backup: RetentionRule = field(default_factory=lambda: RetentionRule(minutes=120, last=5, best=1))
    """The object store of `placement.backup`, where there is one."""
    cost_share: float = 0.02
    """The largest share of the steps' time that saves on a tier may cost."""
    failures_per_rank_day: float = 466 / (54 * 16_384)
    """How often a machine is expected to fail, for each rank and day, until the training has shown it. The default is
    Llama 3's (arXiv:2407.21783): once in 2.8 hours on 16,384 GPUs, once in 5 years on one."""
    memory_steps: int = 0
    """After each so many steps, the state of all ranks is kept in the memory of their nodes as well, so that a rank
    that dies costs no more steps than these; 0 for what the saves leave there."""
    key_file: str = ""
    """A file with a key of 64 hex digits that encrypts checkpoints; empty for checkpoints that are not encrypted."""

    def __post_init__(self) -> None:
        require(0 < self.cost_share <= 1, "cost_share", "expected a share above 0, and at most 1")
        positive(self, "failures_per_rank_day")
        require(self.memory_steps >= 0, "memory_steps", "expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What is recorded beyond the figures of each step."""

    profile_from: int = 0
    """The first step that PyTorch's profiler records; 0 to record on a signal (SIGUSR2) alone."""
    profile_steps: int = 3
    """How many steps a profile covers."""
    window_steps: int = 50
    """The ledger says after each so many steps what bounds them."""
    compare_steps: int = 500
    """After each so many steps, ranks that hold the same weights compare them, which finds silent corruption and drift;
    0 for never. They do so before each checkpoint too. A comparison costs one pass over the weights."""

    def __post_init__(self) -> None:
        require(self.profile_from >= 0, "profile_from", "expected 0 or more")
        require(self.compare_steps >= 0, "compare_steps", "expected 0 or more")
        positive(self, "profile_steps", "window_steps")

    def compares_after(self, step: int, saves: bool) -> bool:
        """Whether ranks compare their weights after a step; before they save, so that what is saved is of before a
        fault."""
        return self.compare_steps > 0 and (saves or step % self.compare_steps == 0)


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What evaluates a checkpoint, and measures it again as champion and in the restore drill: one process of the
    control plane while the weights are small, else a job whose ranks have shares of the weights and of the samples."""

    ranks: int = 0
    """Ranks of the job, at most those of `placement`; 0: one process, or the fewest ranks that have room."""
    tensor: int = 1
    """Of the job's ranks, how many share each matrix; the rest of the division is FSDP's."""
    batch: int = 0
    """Samples that a rank computes at once; 0: as many as its memory has room for, at most 16."""
    process_gigabytes: float = 2.0
    """Weights above this, in 10^9 bytes, are for a job, in evaluation and in export; with `ranks`, all are."""

    def __post_init__(self) -> None:
        require(self.ranks >= 0, "ranks", "expected 0 or more")
        require(self.batch >= 0, "batch", "expected 0 or more")
        positive(self, "tensor")
        require(self.process_gigabytes >= 0, "process_gigabytes", "expected 0 or more")
        is_multiple = self.ranks % self.tensor == 0
        require(is_multiple, "ranks", f"expected 0 or a multiple of tensor ({self.tensor})")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """How ranks talk to each other and where they run; `slipway.trainer.config.profiles` has the profiles.

    A field that is left out has the profile's value; where the profile has none, NCCL decides, as it mostly should. A
    variable in the environment of a rank comes before all of these. Values and defaults are those of the NCCL user
    guide, "Environment Variables".
    """

    profile: Literal["none", "ethernet", "h200-infiniband", "h100-8nic"] = "none"
    infiniband: bool | None = None
    """NCCL_IB_DISABLE, and with true NCCL_NET=IB: NCCL fails where it would otherwise fall back to TCP, ten times
    slower. The algorithm sharp, which comes with a network of its own, leaves NCCL_NET out."""
    adapters: str | None = None
    """NCCL_IB_HCA: prefixes of adapters (mlx5), `=` before exact ones (=mlx5_0,mlx5_1). NCCL then gives each GPU the
    nearest of them; a list leaves out adapters that lead to storage."""
    gid_index: int | None = None
    """NCCL_IB_GID_INDEX. 3 is RoCE v2 over IPv4 on Mellanox adapters; it has no effect on InfiniBand."""
    gpudirect_level: Literal["LOC", "PIX", "PXB", "PHB", "SYS"] | None = None
    """NCCL_NET_GDR_LEVEL: the longest way between adapter and GPU on which the adapter reads and writes the GPU's
    memory itself. PXB is through PCI switches and not through the processor, which is slower than a copy. By name:
    NCCL reads the number 5, often seen for it, as SYS, and 2 as PXB."""
    gpudirect_read: bool | None = None
    """NCCL_NET_GDR_READ: the same for sending, so that neither direction goes through host memory."""
    cross_nic: Literal[0, 1, 2] | None = None
    """NCCL_CROSS_NIC. 0 keeps a ring on one rail, for nodes where each adapter has a switch of its own; 1 uses any
    adapter, for nodes whose adapters share a switch; 2 prefers one rail."""
    buffer_bytes: int | None = None
    """NCCL_BUFFSIZE, for each channel to a peer; NCCL's default is 4 MiB. 16 MiB keeps 400 Gb/s adapters busy with
    gigabyte messages, and costs GPU memory."""
    p2p_level: Literal["LOC", "NVL", "PIX", "PXB", "PHB", "SYS"] | None = None
    """NCCL_P2P_LEVEL. NVL: GPUs of a node talk over NVLink or not at all, and never over the slow PCI."""
    socket_interface: str | None = None
    """NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME, for the rendezvous and for TCP: eth0, which every pod has. Data goes
    through `adapters`, with InfiniBand. Without it, ranks on nodes with many interfaces may choose interfaces that do
    not reach each other."""
    algorithm: Literal["ring", "tree", "hierarchical", "sharp"] | None = None
    """NCCL_ALGO of all-reduce, with rings where it does not apply. hierarchical reduces in the node's NVLink switches
    and by a tree between nodes; sharp reduces in the network's switches, and needs the CollNet plugin. NCCL chooses by
    size and topology, which is better than one choice for all sizes: set this to compare."""
    debug: Literal["WARN", "INFO"] | None = None
    """NCCL_DEBUG. INFO prints which transports and rings NCCL chose, for a new cluster."""
    affinity: Literal["none", "numa"] | None = None
    """numa: a rank runs on the processors of its GPU's NUMA node, as copies to the GPU from another NUMA node have half
    the bandwidth. It has no effect on a machine with one NUMA node."""
    deterministic: bool = False
    """Whether only algorithms are used that give the same bits each time, on the same hardware, libraries and layout.
    They are slower. Without it, repeated and resumed steps on a GPU may differ by rounding."""
    timeout_seconds: float = 3600.0
    """How long a rank waits for the others in one exchange; the process groups have this limit, there is no
    NCCL_TIMEOUT. It must be as long as any work that one rank does for all, above all staging. It holds at the start,
    in the first step (which may compile), in validations and at the end."""
    step_timeout_seconds: float = 1800.0
    """The same limit in all other steps. Heartbeats find a hang sooner, within `recovery.no_progress_seconds`, and keep
    the stacks of the ranks: this limit should be longer than that."""

    def __post_init__(self) -> None:
        positive(self, "timeout_seconds", "step_timeout_seconds")
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
    origins: tuple[str, ...] = ()
    """Folders and URLs that are asked, in this order, for shards that the durable tier lacks or has damaged; one with
    ``{node}`` stands for all other nodes of the training."""
    staging: Literal["auto", "whole", "streaming", "parts", "window", "before"] = "auto"
    """What of the snapshot a node holds; see `slipway.trainer.staging.holding`. "before" is an earlier name of
    "whole"."""
    nvme_gigabytes: float | None = None
    """The most that the shards of this training may take on a node's NVMe; null: what is free, less a tenth."""
    init: str = ""
    """The folder of the initial weights, where the training has a section `init`."""
    parent: str = ""
    """The store of the training that this one continues, where it has a section `branch`."""

    def __post_init__(self) -> None:
        require(
            self.nvme_gigabytes is None or self.nvme_gigabytes > 0, "nvme_gigabytes", "expected null or more than 0"
        )


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """How PyTorch uses the GPU and the compiler. A variable in the environment of a rank comes before a field here."""

    tf32: Literal["none", "convolutions", "all"] = "convolutions"
    """Which products of fp32 values the tensor cores compute, with 10 bits of mantissa instead of 23 and about seven
    times as fast: none, those of convolutions (as PyTorch does by itself), or matrix products too. It has no effect
    where `run.precision` is not fp32, nor on a CPU."""
    cudnn_benchmark: bool = False
    """Whether cuDNN tries its algorithms for each new shape, and takes the fastest one. It pays for convolutions over
    pictures of one size; which one is the fastest may differ from start to start, and with it the rounding."""
    expandable_segments: bool = True
    """Whether PyTorch grows its blocks of GPU memory instead of adding new ones: less is lost to fragments when sizes
    vary (PYTORCH_ALLOC_CONF)."""
    collect_above: float = 0.0
    """The share of the GPU's memory above which PyTorch gives back blocks that it has not used for long; 0 for never
    before the memory is full (garbage_collection_threshold)."""
    compile_cache: bool = True
    """Whether what the compiler has made is kept on the node's NVMe until the training is over, so that a restart with
    `layout.compile` compiles nothing again (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR). Where the path of the NVMe has
    spaces or quotes, it stays among the temporary files."""

    def __post_init__(self) -> None:
        require(0 <= self.collect_above < 1, "collect_above", "expected a share from 0 up to, but not including, 1")


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
        for name in ("skips", "spike_sigmas", "straggler_sigmas"):
            require(getattr(self, name) >= 0, name, "expected 0 or more")

    def stays(self, on_gpu: bool) -> bool:
        """Whether a rank that is well stays in its process."""
        return on_gpu if self.survivors == "by_device" else self.survivors == "stay"
