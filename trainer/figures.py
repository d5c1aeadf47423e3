"""Figures: what is computed from a step's measurements, and the verdict on what bounds a window of steps."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trainer.scores import perplexity

Bound = Literal["compute", "data", "communication", "checkpoint", "cpu", "memory"]

MOST = {"data": 0.05, "communication": 0.15, "checkpoint": 0.03, "cpu": 0.10}
"""The share of time from which on something else than computing bounds the training.

data            The next batch is read while this one is computed: a loader that keeps up shows next to nothing.
communication   What users of such clusters accept.
checkpoint      97 % productive time is the aim; checkpoints alone must not take all the rest of it.
cpu             Ready to run, and no core: more processes than cores. A few percent are the kernel's own work.
"""
LEAST_GPU_USE = 0.85
"""Below it the GPU waits; where it does not wait for data or ranks, it waits for the host to launch kernels."""
LEAST_FREE = 0.05
"""Of the host's memory: below it the kernel gives up the pages of the shards, and then kills."""
GOOD_MFU = 0.4
"""What well-tuned dense transformers reach at scale (PaLM 46 %, Llama 3 38 to 43 %)."""


@dataclass(frozen=True)
class Work:
    """What every step of a training has to do, over all ranks."""

    samples: int
    tokens: int
    """0 for pictures."""
    flops: int
    """Of forward and backward, as the model states them: nothing for recomputed activations."""
    peak: float | None
    """FLOP/s of all ranks' devices together, in the precision that is computed in; None where no data sheet says."""


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
    """Of a step, for people: tokens/s, or samples/s where there are no tokens; empty where nobody measured it."""
    if "tokens_per_second" in figures:
        return f"{figures['tokens_per_second']:,.0f} tokens/s"
    return f"{figures['samples_per_second']:,.1f} samples/s" if "samples_per_second" in figures else ""


@dataclass(frozen=True)
class Window:
    """What consecutive steps of one rank took."""

    steps: int
    seconds: float
    """From the end of the step before the first to the end of the last one."""
    parts: Mapping[str, float]
    """Seconds in data, forward, backward, optimiser, communication and whatever else was timed.

    Communication is missing where the layout does not let it be measured.
    """
    checkpoint_share: float = 0.0
    """Of all the time since this incarnation's first step: a window may hold a rare checkpoint, or none."""
    usage: Mapping[str, float] = field(default_factory=dict)
    """See `trainer.usage`."""
    memory_retries: int = 0
    """Allocations on the GPU that found no memory before the allocator's cache was given up."""
    mfu: float | None = None


@dataclass(frozen=True)
class Verdict:
    bound: Bound
    share: float
    """Of the time, spent on what bounds it; for memory the share that is free, for compute that of computing."""
    advice: str
    """One sentence."""


def verdict(window: Window) -> Verdict:
    """What bounds these steps.

    Memory comes first, since it may end the training; then whatever exceeds its share of `MOST` by most.
    """
    short = _short_of_memory(window)
    if short:
        return short
    shares = _shares(window)
    worst = max(shares, key=lambda name: shares[name] / MOST[name])
    if shares[worst] > MOST[worst]:
        return Verdict(worst, shares[worst], _advice(worst, shares[worst]))
    idle = 1 - window.usage.get("gpu_use", 1.0)
    if idle > 1 - LEAST_GPU_USE:
        return Verdict("cpu", idle, f"The GPU is idle for {idle:.0%} of the time: {LAUNCHES}.")
    return _computing(window)


def _short_of_memory(window: Window) -> Verdict | None:
    free = window.usage.get("host_memory_free_share", 1.0)
    if window.memory_retries:
        advice = f"The GPU's memory ran short {window.memory_retries} times: make batch.micro smaller or recompute"
        return Verdict("memory", 0.0, f"{advice} activations (layout.activations).")
    if free < LEAST_FREE:
        return Verdict("memory", free, f"{free:.1%} of the host's memory are left: put fewer ranks on the node.")
    return None


def _shares(window: Window) -> dict[Bound, float]:
    return {
        "data": window.parts.get("data", 0.0) / window.seconds,
        "communication": window.parts.get("communication", 0.0) / window.seconds,
        "checkpoint": window.checkpoint_share,
        "cpu": window.usage.get("cpu_wait", 0.0),
    }


LAUNCHES = "kernels are launched too slowly; set layout.compile, or give batch.micro more samples"
ADVICE: dict[Bound, str] = {
    "data": "waiting for data: see whether the shards are on the node's NVMe, and what else reads from it",
    "communication": "waiting for other ranks: let more samples accumulate between exchanges, compress gradients "
    "(communication.compression), or look with a profile for a rank that is slow",
    "checkpoint": "writing checkpoints: write them less often (checkpoint.every)",
    "cpu": "waiting for a core: start fewer ranks on the node, or end what else runs there",
}


def _advice(bound: Bound, share: float) -> str:
    return f"{share:.0%} of the time go into {ADVICE[bound]}."


NOT_COMPUTING = ("data", "communication", "checkpoint", "validation")


def _computing(window: Window) -> Verdict:
    share = sum(spent for name, spent in window.parts.items() if name not in NOT_COMPUTING) / window.seconds
    if window.mfu is not None and window.mfu < GOOD_MFU:
        reached = f"The device computes all the time and reaches {window.mfu:.0%} of its peak"
        return Verdict("compute", share, f"{reached}: try bf16, layout.compile and a larger batch.micro.")
    return Verdict("compute", share, "Nothing but computing takes time worth speaking of.")
