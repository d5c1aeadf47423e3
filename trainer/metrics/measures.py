"""Figures computed from the measurements of a step, and the verdict on what bounds a window of steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from slipway.trainer.record.scores import perplexity

Bound = Literal["compute", "data", "communication", "checkpoint", "cpu", "memory"]

MOST = {"data": 0.05, "communication": 0.15, "checkpoint": 0.03, "cpu": 0.10}
"""Shares of time above which something other than computing bounds the training.

data            The next batch is read while this one is computed: a loader that keeps up takes almost no time.
communication   Users of such clusters accept this share.
checkpoint      The aim is 97 % productive time; checkpoints alone must not take the other 3 %.
cpu             The rank was ready to run and had no core: there are more processes than cores, or the container has
                used its limit up. The kernel's own work is a few percent.
"""
LEAST_GPU_USE = 0.85
"""Below this share the GPU waits: if not for data or ranks, then for the host, which launches kernels."""
LEAST_FREE = 0.05
"""Free share of the host's memory: below it the kernel drops the shards' pages from its cache, then kills processes."""
FIRST_WINDOW = 10
"""The most steps of a start's first window, so that an operator need not wait for a whole window."""
GOOD_MFU = 0.4
"""Well-tuned dense transformers reach this at scale (PaLM 46 %, Llama 3 38 to 43 %)."""


@dataclass(frozen=True)
class Work:
    """The work of every step of a training, over all ranks."""

    samples: int
    tokens: int
    """0 for pictures."""
    flops: int
    """Of forward and backward passes, by the model's own count, without recomputed activations."""
    peak: float | None
    """FLOP/s of all ranks' devices together in the precision of the run; None for a device without a data sheet."""


def of_step(work: Work, loss: float, accuracy: float, seconds: float) -> dict[str, float]:
    """A step's figures from its mean loss (nats), share of right predictions and duration.

    MFU is model FLOP/s over peak dense FLOP/s (Chowdhery et al., arXiv:2204.02311, appendix B).
    """
    figures = {"loss": loss, "accuracy": accuracy, "samples_per_second": work.samples / seconds}
    if work.tokens:
        figures |= {"perplexity": perplexity(loss), "tokens_per_second": work.tokens / seconds}
    figures["flops_per_second"] = work.flops / seconds
    if work.peak:
        figures["mfu"] = figures["flops_per_second"] / work.peak
    return figures


def throughput(figures: Mapping[str, float]) -> str:
    """The throughput of a step as text: tokens/s, or samples/s for pictures; empty if it was not measured."""
    if "tokens_per_second" in figures:
        return f"{figures['tokens_per_second']:,.0f} tokens/s"
    if "samples_per_second" in figures:
        return f"{figures['samples_per_second']:,.1f} samples/s"
    return ""


@dataclass(frozen=True)
class Window:
    """Time and memory of consecutive steps of one rank."""

    steps: int
    seconds: float
    """From the end of the step before the first to the end of the last one."""
    parts: Mapping[str, float]
    """Seconds in data, forward, backward, optimizer, communication and every other timed part.

    Communication is missing in layouts that cannot measure it.
    """
    checkpoint_share: float = 0.0
    """Checkpoints' share of the time since this incarnation's first step: a single window may have one by chance."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """See `slipway.trainer.metrics.usage`."""
    memory_retries: int = 0
    """Allocations on the GPU that succeeded only after the allocator freed its cache."""
    mfu: float | None = None


@dataclass(frozen=True)
class Verdict:
    """The bound of a window of steps."""

    bound: Bound
    share: float
    """The share of time that the bound takes; for memory, the share that is free."""
    recommendation: str
    """One sentence."""


def verdict(window: Window) -> Verdict:
    """The bound of these steps.

    Memory comes first, because a shortage may end the training; then the part that exceeds its share in `MOST` by most.
    """
    short = _short_of_memory(window)
    if short:
        return short
    shares = _shares(window)
    worst = max(shares, key=lambda name: shares[name] / MOST[name])
    if worst == "cpu" and window.usage.get("cpu_throttled", 0.0) > MOST["cpu"]:
        return Verdict("cpu", shares["cpu"], _throttled(window.usage))
    if shares[worst] > MOST[worst]:
        return Verdict(worst, shares[worst], _remedy(worst, shares[worst]))
    idle = 1 - window.usage.get("gpu_use", 1.0)
    if idle > 1 - LEAST_GPU_USE:
        return Verdict("cpu", idle, f"The GPU is idle for {idle:.0%} of the time: {LAUNCH_ADVICE}.")
    return _bound_by_computing(window)


def _short_of_memory(window: Window) -> Verdict | None:
    free = window.usage.get("host_memory_free_share", 1.0)
    if window.memory_retries:
        message = f"The GPU's memory ran short {window.memory_retries} times: make batch.micro smaller or recompute"
        return Verdict("memory", 0.0, f"{message} activations (layout.activations).")
    if free < LEAST_FREE:
        return Verdict("memory", free, f"{free:.1%} of the host's memory is left: put fewer ranks on the node.")
    return None


def _shares(window: Window) -> dict[Bound, float]:
    return {
        "data": window.parts.get("data", 0.0) / window.seconds,
        "communication": window.parts.get("communication", 0.0) / window.seconds,
        "checkpoint": window.checkpoint_share,
        "cpu": max(window.usage.get("cpu_wait", 0.0), window.usage.get("cpu_throttled", 0.0)),
    }


LAUNCH_ADVICE = "kernels are launched too slowly; set layout.compile, or give batch.micro more samples"
REMEDIES: dict[Bound, str] = {
    "data": "waiting for data: check whether the shards are on the node's NVMe, and what else reads from it",
    "communication": "waiting for other ranks: let more samples accumulate between exchanges, compress gradients "
    "(communication.compression), or find a slow rank with a profile",
    "checkpoint": "writing checkpoints: write them less often (checkpoint.every)",
    "cpu": "waiting for a core: start fewer ranks on the node, or end other processes there",
}


def _remedy(bound: Bound, share: float) -> str:
    return f"{share:.0%} of the time goes into {REMEDIES[bound]}."


def _throttled(usage: Mapping[str, float]) -> str:
    share = usage["cpu_throttled"]
    quota = usage["cpu_quota"]
    return (
        f"The container has used its limit of {quota:.3g} cores up in {share:.0%} of the time, and stands still then: "
        "raise cpu in placement.kubernetes.resources, or in compute.cluster.resources of the platform's settings."
    )


NOT_COMPUTING = ("data", "communication", "checkpoint", "validation")


def _bound_by_computing(window: Window) -> Verdict:
    share = sum(spent for name, spent in window.parts.items() if name not in NOT_COMPUTING) / window.seconds
    if window.mfu is not None and window.mfu < GOOD_MFU:
        reached = f"The device computes all the time but reaches only {window.mfu:.0%} of its peak"
        return Verdict("compute", share, f"{reached}: try bf16, layout.compile and a larger batch.micro.")
    return Verdict("compute", share, "Almost all of the time goes into computing.")
