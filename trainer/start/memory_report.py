"""The memory report: the estimate of a training's memory and the GPUs it fits on, for people and for programs.

`slipway plan` shows it (`trainer.start.memory` computes it).
"""

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from trainer.config.hardware import CARDS
from trainer.config.resolved import Config
from trainer.data import shards
from trainer.start import memory
from trainer.start.memory import MemoryPlan


def plan_of_config(config: Config) -> MemoryPlan:
    """The plan of one rank that trains alone; the vocabulary is that of the snapshot.

    Raises ValueError when the snapshot cannot be read, and for a model other than a decoder.
    """
    snapshot = shards.read_manifest(Path(config.placement.durable), config.snapshot)
    return MemoryPlan(
        model=memory.decoder(config.model),
        vocabulary=snapshot.tokenizer.vocab_size,
        length=config.batch.length,
        micro=config.batch.micro,
        precision=config.run.precision,
    )


def cards(plan: MemoryPlan) -> dict[str, dict[str, int | None]]:
    """For each card: the largest micro-batch on one GPU and under DDP, and the fewest GPUs of a full shard."""
    return {name: _card(plan, memory.USABLE * sheet.memory * memory.GIB) for name, sheet in CARDS.items()}


def _card(plan: MemoryPlan, capacity: float) -> dict[str, int | None]:
    return {
        "largest_micro": memory.largest_micro(replace(plan, ranks=1), capacity),
        "largest_micro_ddp": memory.largest_micro(replace(plan, ranks=2), capacity),
        "fewest_ranks": memory.fewest_ranks(plan, capacity),
    }


def report(plan: MemoryPlan) -> Iterator[str]:
    """The lines of the report for people; the numbers in brackets are with activation checkpointing."""
    count = memory.parameters(plan.model, plan.vocabulary)
    yield f"{count:,} parameters, micro-batch {plan.micro} of {plan.length} tokens, {plan.precision}, on one GPU:"
    needed = memory.estimate(plan)
    for part, size in {**asdict(needed), "total": needed.total}.items():
        yield f"  {part:<12} {size / memory.GIB:>10,.3f} GiB"
    yield "Largest micro-batch on one GPU and under DDP, and fewest GPUs of a full shard with this micro-batch;"
    yield f"in brackets with activation checkpointing. The plan uses {memory.USABLE:.0%} of a card's memory."
    yield f"  {'card':<16} {'GiB':>4} {'one GPU':>16} {'DDP':>16} {'full shard':>16}"
    again = cards(replace(plan, recompute=True))
    for name, kept in cards(plan).items():
        cells = (f"{kept[what] or '-'} ({again[name][what] or '-'})" for what in kept)
        yield f"  {name:<16} {CARDS[name].memory:>4.0f} " + " ".join(f"{cell:>16}" for cell in cells)


def as_json(plan: MemoryPlan) -> dict[str, object]:
    """The report for programs: bytes by part, and the sizes that each card holds."""
    needed = memory.estimate(plan)
    sizes = {**asdict(needed), "total": needed.total}
    return {"parameters": memory.parameters(plan.model, plan.vocabulary), "bytes": sizes, "cards": cards(plan)}
