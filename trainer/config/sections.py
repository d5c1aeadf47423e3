"""The sections of a configuration that decide a training's numbers, all but the model's shape."""

from dataclasses import dataclass
from typing import Literal

from slipway.trainer.base.invalid import positive, require

Precision = Literal["fp32", "bf16", "fp16", "fp8"]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The samples of one optimiser step; the same for any number of ranks."""

    sequences: int
    """Sequences (or pictures) in a step over all ranks: the global batch."""
    length: int = 0
    """Tokens a sequence; 0 for pictures."""
    micro: int
    """Sequences that go through the model at once; gradients accumulate over the rest."""

    def __post_init__(self) -> None:
        positive(self, "sequences", "micro")
        require(self.length >= 0, "length", "expected 0 or more")


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The update rule, and the learning rate as a function of the step: linear warm-up, then a schedule."""

    kind: Literal["adamw", "adam", "sgd", "muon"] = "adamw"
    """muon: Muon for the matrices of the blocks, AdamW for all the rest."""
    learning_rate: float
    """The highest learning rate, which the warm-up ends at."""
    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    """wsd: constant, then a linear decay over the last `decay_fraction` of the steps."""
    warmup_steps: int = 0
    """Steps in which the rate rises from 0."""
    final_fraction: float = 0.1
    """The last step's learning rate as a share of the highest."""
    decay_fraction: float = 0.2
    """wsd: the share of all steps in which the rate decays."""
    beta1: float = 0.9
    """How much of its running mean a gradient keeps (adam and adamw)."""
    beta2: float = 0.95
    """How much of its running square a gradient keeps (adam and adamw)."""
    momentum: float = 0.9
    """The momentum of sgd and muon."""
    weight_decay: float = 0.1
    """How strongly the weights are pulled towards 0."""
    clip: float = 1.0
    """Largest gradient norm; longer gradients are scaled down to it."""

    def __post_init__(self) -> None:
        require(self.learning_rate > 0, "learning_rate", "expected a number above 0")
        require(self.warmup_steps >= 0, "warmup_steps", "expected 0 or more")
        require(0 <= self.final_fraction <= 1, "final_fraction", "expected 0 to 1")
        require(0 < self.decay_fraction <= 1, "decay_fraction", "expected a number above 0, up to 1")
        for name in ("beta1", "beta2", "momentum"):
            require(0 <= getattr(self, name) < 1, name, "expected 0 or more, below 1")
        require(self.weight_decay >= 0, "weight_decay", "expected 0 or more")
        require(self.clip > 0, "clip", "expected a number above 0")

    @property
    def copies(self) -> int:
        """Tensors as large as a parameter that the state has, at least: Muon has two for what is no matrix."""
        return {"adamw": 2, "adam": 2, "sgd": 1, "muon": 1}[self.kind]


@dataclass(frozen=True, kw_only=True)
class Run:
    """How long a training runs, from which seed, in which arithmetic."""

    steps: int
    """Optimiser steps in all."""
    seed: int = 0
    """Determines the first weights and the order of the data."""
    precision: Precision = "fp32"
    """bf16 and fp16 compute under autocast and keep fp32 weights; fp16 scales the loss dynamically; fp8 is bf16 with
    matrix products in 8 bits, on hardware that has them."""
    shuffle_shards: int = 64
    """Shards whose samples are shuffled together; more of them shuffle better, and keep more files open at a time."""
    freeze: tuple[str, ...] = ()
    """Parameters whose names begin with one of these keep their first values."""

    def __post_init__(self) -> None:
        positive(self, "steps", "shuffle_shards")
        require(0 <= self.seed < 2**63, "seed", "expected 0 to 2^63 - 1")


@dataclass(frozen=True, kw_only=True)
class Communication:
    """How gradients travel between data-parallel ranks, where that changes them."""

    compression: Literal["none", "bf16", "fp16", "powersgd"] = "none"
    """The type in which gradients are sent and summed, in every layout: fp32 with none, or 16 bits. powersgd sends
    thin matrices in place of each gradient, where every rank has the whole model."""
    powersgd_rank: int = 1
    """Rank of the approximation of each gradient matrix (Vogels et al., arXiv:1905.13727)."""
    local_steps: int = 1
    """Steps that each rank takes on its own before the ranks' weights are averaged; 1 for no local updates."""
    outer_learning_rate: float = 1.0
    """1 with no outer momentum averages the ranks' weights (local SGD); DiLoCo takes 0.7 (arXiv:2311.08105)."""
    outer_momentum: float = 0.0
    """Nesterov momentum of the outer update; DiLoCo takes 0.9."""

    def __post_init__(self) -> None:
        positive(self, "powersgd_rank", "local_steps", "outer_learning_rate")
        require(0 <= self.outer_momentum < 1, "outer_momentum", "expected 0 or more, below 1")
        both = self.local_steps > 1 and self.compression != "none"
        require(not both, "compression", "expected none, as gradients do not travel with local_steps above 1")
        for name, alone in (("outer_learning_rate", 1), ("outer_momentum", 0)):
            used = self.local_steps > 1 or getattr(self, name) == alone
            require(used, name, f"expected {alone}, as there is no outer update with local_steps 1")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """When checkpoints are made."""

    every: int
    """Steps between two checkpoints on the durable tier; the last step always leaves one."""

    def __post_init__(self) -> None:
        require(self.every > 0, "every", "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """Validation inside the run, for early stopping; an evaluation is a process of its own."""

    every: int = 0
    """Steps between two validations; 0 for none."""
    sequences: int = 64
    """How many samples of the validation split are used, always the same ones."""

    def __post_init__(self) -> None:
        require(self.every >= 0, "every", "expected 0 or more")
        require(self.sequences > 0, "sequences", "expected a number above 0")


@dataclass(frozen=True, kw_only=True)
class Branch:
    """The checkpoint of another training that this one continues, with its full state; `placement.parent` is where."""

    training: str
    """The parent's id."""
    commit: str
    """The name of the parent's commit."""
    step: int
    manifest: str
    """SHA-256 of the checkpoint's manifest."""


@dataclass(frozen=True, kw_only=True)
class Init:
    """The weights that the first step starts from, in place of random ones; `placement.init` is their folder."""

    layout: Literal["checkpoint", "huggingface"]
    """A checkpoint of a training, or a model in the Hugging Face layout."""
    digest: str
    """What the folder must hold; see `slipway.trainer.start.initial.digest_of`."""

    def __post_init__(self) -> None:
        fits = len(self.digest) == 64 and set(self.digest) <= set("0123456789abcdef")
        require(fits, "digest", "expected 64 hex digits")
