"""``python -m trainer.memory CONFIG.json``: how much memory a training takes, and which GPUs it fits on.

The activations are those of Korthikanti et al. 2022 (arXiv:2205.05198, section 4), counted anew for this decoder:
SwiGLU keeps four tensors of the hidden width, fused attention keeps no scores, nothing is dropped out, keys and
values are as wide as their heads. The counts are exact for PyTorch's eager kernels on CPU, and so is the peak of a
step within 2 %, with activation checkpointing within 7 %.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Literal

from trainer import config, shards
from trainer.config import Config
from trainer.hardware import CARDS
from trainer.sections import Precision
from trainer.shapes import DecoderShape, Shape

GIB = 2**30
USABLE = 0.9
"""The share of a card's memory that is planned with: the rest is CUDA's context, NCCL's buffers and fragments."""
RANKS = tuple(2**power for power in range(13))
"""Numbers of GPUs that are tried, the fewest first."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that decides the memory of one rank."""

    model: DecoderShape
    vocabulary: int
    length: int
    """Tokens a sequence."""
    micro: int
    """Sequences through the model at once."""
    precision: Precision = "fp32"
    ranks: int = 1
    sharded: bool = False
    """Weights, gradients and optimiser state divided over the ranks (full shard) instead of replicated (DDP)."""
    recompute: bool = False
    """Activation checkpointing of whole blocks: only their inputs are kept, and one block is computed again."""
    device: Literal["cuda", "cpu"] = "cuda"
    """CPU kernels keep more: RMSNorm is not fused there, and attention writes its heads in another order."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Bytes on one rank at the peak of a step, when the backward pass begins with gradients accumulated before."""

    weights: int
    gradients: int
    optimiser: int
    """AdamW's two moments, in fp32."""
    copies: int
    """Weights in another form: bf16 for autocast, or a full shard's gathered blocks and DDP's buckets."""
    activations: int
    working: int
    """The logits and their gradients, or a block that is computed again if that is more: never both at a time."""

    @property
    def total(self) -> int:
        return sum(getattr(self, each.name) for each in fields(self))


def parameters(model: DecoderShape, vocabulary: int) -> int:
    """The parameters of `Decoder`: embedding, head, final norm and the blocks."""
    return 2 * vocabulary * model.width + model.width + model.layers * block_parameters(model)


def block_parameters(model: DecoderShape) -> int:
    """Query and output, key and value, the three matrices of SwiGLU, and two norms."""
    return 2 * model.width**2 + 2 * model.width * _kv_width(model) + 3 * model.width * model.hidden + 2 * model.width


def estimate(plan: Plan) -> Estimate:
    """What one rank needs."""
    held = -(-parameters(plan.model, plan.vocabulary) // (plan.ranks if plan.sharded else 1))
    return Estimate(
        weights=4 * held,
        gradients=4 * held,
        optimiser=8 * held,
        copies=_copies(plan),
        activations=activation_bytes(plan),
        working=max(_logits_bytes(plan), _block_bytes(plan) if plan.recompute else 0),
    )


def activation_bytes(plan: Plan) -> int:
    """Bytes that autograd keeps from the forward pass of one micro-batch, without the logits'."""
    model, tokens = plan.model, plan.micro * plan.length
    blocks = model.layers * (4 * tokens * model.width if plan.recompute else _block_bytes(plan))
    final = _norm_bytes(plan) + tokens * _element(plan) * model.width
    numbers = 8 * plan.micro * (plan.length + 1) + 8 * tokens  # inputs and targets are int64
    return blocks + final + numbers


def largest_micro(plan: Plan, capacity: float) -> int:
    """The most sequences a micro-batch whose peak stays within `capacity` bytes; 0 if not even one does."""
    one, two = (estimate(replace(plan, micro=micro)).total for micro in (1, 2))
    return max(0, 1 + int((capacity - one) // (two - one)))


def fewest_ranks(plan: Plan, capacity: float) -> int | None:
    """The fewest of `RANKS` at which a full shard stays within `capacity` bytes a rank; None if none does."""
    plans = (replace(plan, ranks=ranks, sharded=ranks > 1) for ranks in RANKS)
    return next((each.ranks for each in plans if estimate(each).total <= capacity), None)


def _kv_width(model: DecoderShape) -> int:
    return model.width // model.heads * model.kv_heads


def _element(plan: Plan) -> int:
    """Bytes an element in what the matrices compute with."""
    return 4 if plan.precision == "fp32" else 2


def _norm_bytes(plan: Plan) -> int:
    """One RMSNorm, in fp32: its input and each token's scale; unfused, the scaled input too."""
    tensors = 1 if plan.device == "cuda" else 2
    return plan.micro * plan.length * 4 * (tensors * plan.model.width + 1)


def _block_bytes(plan: Plan) -> int:
    """What one block keeps. Under autocast every matrix keeps a cast input of its own; else they share one."""
    model, tokens, element = plan.model, plan.micro * plan.length, _element(plan)
    autocast = plan.precision != "fp32"
    inputs = (3 + 2 if autocast else 1 + 1) * model.width
    mixed = (1 if plan.device == "cuda" else 2) * model.width
    attention = model.width + 2 * _kv_width(model) + mixed
    kept = tokens * element * (inputs + attention + 4 * model.hidden)
    softmax_sums = 4 * tokens * model.heads
    rotation = 4 * plan.length * (model.width // model.heads) if autocast else 0
    return 2 * _norm_bytes(plan) + kept + softmax_sums + rotation


def _logits_bytes(plan: Plan) -> int:
    """Three fp32 tensors of the vocabulary's width: log-softmax, its gradient, and the gradient before it."""
    return 3 * 4 * plan.micro * plan.length * plan.vocabulary


def _copies(plan: Plan) -> int:
    """Weights held a second time.

    A full shard gathers the root (embedding, head) for the whole step and two blocks at a time, the second while
    the first computes, and has one block's gradients in full (Zhao et al. 2023, arXiv:2304.11277). DDP's buckets are
    as large as the gradients (torch.nn.parallel.DistributedDataParallel, gradient_as_bucket_view).
    """
    model, element = plan.model, _element(plan)
    if plan.sharded:
        return element * (2 * plan.vocabulary * model.width + 3 * block_parameters(model))
    norms = (2 * model.layers + 1) * model.width
    matrices = parameters(model, plan.vocabulary) - norms - plan.vocabulary * model.width
    autocast = 2 * matrices if plan.precision != "fp32" else 0
    buckets = 4 * parameters(model, plan.vocabulary) if plan.ranks > 1 else 0
    return autocast + buckets


def of_config(resolved: Config, vocabulary: int) -> Plan:
    """The plan of one rank that trains on its own."""
    batch = resolved.batch
    return Plan(
        model=decoder(resolved.model),
        vocabulary=vocabulary,
        length=batch.length,
        micro=batch.micro,
        precision=resolved.run.precision,
    )


def decoder(shape: Shape) -> DecoderShape:
    """`shape` itself. Raises ValueError for a model whose activations are not counted here."""
    if not isinstance(shape, DecoderShape):
        raise ValueError(f"model.kind: found {shape.kind!r}, expected 'decoder', whose memory can be estimated")
    return shape


def cards(plan: Plan) -> dict[str, dict[str, int | None]]:
    """For each card the largest micro-batch on one GPU and under DDP, and the fewest GPUs of a full shard."""
    return {name: _card(plan, USABLE * sheet.memory * GIB) for name, sheet in CARDS.items()}


def _card(plan: Plan, capacity: float) -> dict[str, int | None]:
    return {
        "largest_micro": largest_micro(replace(plan, ranks=1), capacity),
        "largest_micro_ddp": largest_micro(replace(plan, ranks=2), capacity),
        "fewest_ranks": fewest_ranks(plan, capacity),
    }


def report(plan: Plan) -> Iterator[str]:
    """The estimate and the cards it fits on, for people; in brackets with every block computed again."""
    count = parameters(plan.model, plan.vocabulary)
    yield f"{count:,} parameters, micro-batch {plan.micro} of {plan.length} tokens, {plan.precision}, on one GPU:"
    needed = estimate(plan)
    for part, size in {**asdict(needed), "total": needed.total}.items():
        yield f"  {part:<12} {size / GIB:>10,.3f} GiB"
    yield "Largest micro-batch on one GPU and under DDP, and fewest GPUs of a full shard with this micro-batch;"
    yield f"in brackets with activation checkpointing. {USABLE:.0%} of a card's memory is planned with."
    yield f"  {'card':<16} {'GiB':>4} {'one GPU':>16} {'DDP':>16} {'full shard':>16}"
    again = cards(replace(plan, recompute=True))
    for name, kept in cards(plan).items():
        cells = (f"{kept[what] or '-'} ({again[name][what] or '-'})" for what in kept)
        yield f"  {name:<16} {CARDS[name].memory:>4.0f} " + " ".join(f"{cell:>16}" for cell in cells)


def as_json(plan: Plan) -> dict[str, object]:
    """The same for programs: bytes by part, and what each card holds."""
    needed = estimate(plan)
    sizes = {**asdict(needed), "total": needed.total}
    return {"parameters": parameters(plan.model, plan.vocabulary), "bytes": sizes, "cards": cards(plan)}


def show(plan: Plan, json_wanted: bool) -> None:
    """Print `plan`'s estimate."""
    print(json.dumps(as_json(plan)) if json_wanted else "\n".join(report(plan)))


def _vocabulary(resolved: Config) -> int:
    """From the snapshot's manifest, as the trainer takes it."""
    return shards.read_manifest(Path(resolved.placement.durable), resolved.snapshot).tokenizer.vocab_size


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.memory", description="Estimate a training's memory.")
    parser.add_argument("config", type=Path, help="a resolved configuration")
    parser.add_argument("--vocabulary", type=int, help="words; default: the snapshot's, read from the durable tier")
    parser.add_argument("--json", action="store_true", help="one JSON value instead of a table")
    options = parser.parse_args(arguments)
    try:
        resolved = config.load(options.config)
        vocabulary = options.vocabulary or _vocabulary(resolved)
    except (OSError, ValueError) as error:
        print(f"memory: {error}", file=sys.stderr)
        return 2
    show(of_config(resolved, vocabulary), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
