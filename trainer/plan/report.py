"""The plan's report for people: the bytes of each stage and node, and advice."""

from collections.abc import Iterator

from slipway.trainer.base.quantities import counted
from slipway.trainer.base.units import MIB
from slipway.trainer.plan.room import Room
from slipway.trainer.plan.verdict import PlanVerdict, gib


def report(verdict: PlanVerdict, room: Room) -> Iterator[str]:
    """The lines of the report."""
    fits = "fits" if verdict.fits else "does not fit"
    yield f"{verdict.parameters:,} parameters on {counted(verdict.ranks, 'rank')}: it {fits} on {verdict.room}."
    yield from (f"  {problem}" for problem in verdict.problems)
    if verdict.remedies:
        yield f"  With {' '.join(verdict.remedies)} it fits."
    elif not verdict.fits:
        yield "  No smaller micro-batch, recomputation or division that a recipe can ask for is enough."
    for stage in verdict.stages:
        which = f"stage {stage.stage}, " if len(verdict.stages) > 1 else ""
        ranks = f"rank {stage.first_rank}" + (f" and {stage.ranks - 1} like it" if stage.ranks > 1 else "")
        yield f"Memory of a rank ({which}{ranks}), at the peak of a step:"
        yield from (f"  {part:<14} {gib(size):>14}" for part, size in stage.parts.items() if size)
        margin = f"{gib(stage.spare)} of {gib(room.rank_bytes)} are left"
        short = f"{gib(-stage.spare)} more than the {gib(room.rank_bytes)} that it has"
        yield f"  {'needed':<14} {gib(stage.needed):>14}   {margin if stage.spare >= 0 else short}"
        if verdict.waiting:
            yield f"  It keeps the activations of {stage.in_flight} micro-batches at most, each of one of its stages."
    yield from _node(verdict, room)
    if verdict.waiting:
        yield f"The ranks of the pipeline wait for each other in {100 * verdict.waiting:.1f} % of a step."
    for axis, size in verdict.sent.items():
        if size >= MIB:
            yield f"A rank sends {gib(size)} in a step to its group `{axis}`."
    if verdict.least_gpus:
        yield f"The fewest GPUs with this layout and micro-batch: {verdict.least_gpus}."


def _node(verdict: PlanVerdict, room: Room) -> Iterator[str]:
    host = verdict.host
    checkpoint = verdict.checkpoint
    yield "Memory of a node:"
    yield f"  {'processes':<14} {gib(host.processes):>14}"
    yield f"  {'checkpoints':<14} {gib(host.buffers):>14}   in buffers that are pinned"
    yield f"  {'needed':<14} {gib(host.needed):>14}   of {gib(room.host_bytes)}"
    yield f"A checkpoint has {gib(checkpoint.size)}:"
    for tier, seconds in checkpoint.seconds.items():
        yield f"  {tier:<14} " + (f"{seconds:>12,.1f} s" if seconds is not None else "  its rate is not known")
    yield f"  {'backup':<14} {checkpoint.backup_rate / 1e9:>9,.2f} GB/s are needed to be in time"
    remainder = "" if host.nvme_spare is None else f", which leaves {host.nvme_spare / 1e9:,.0f} GB for shards"
    yield f"Checkpoints take {host.nvme_needed / 1e9:,.1f} GB of a node's NVMe{remainder}."
