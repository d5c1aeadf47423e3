"""Stages: the memory and traffic of one rank of each pipeline stage, measured in a run of the trainer's own step.

All ranks of a stage do the same work on parts of the same size, except for rounding. The first one has the largest
part, and only it is run. PyTorch's fake process group replaces the others, at the true number of ranks; fake tensors
have shapes and no memory.

If all blocks of a model are alike, it is run twice with few blocks: peak and traffic grow by the difference with each
further block. The same is done with the micro-batches of a long pipeline. A test compares both with a full run.
"""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipway.trainer.config.layout import Mesh, micro_batches
from slipway.trainer.node.world import World
from slipway.trainer.plan.kernels import gpu_kernels
from slipway.trainer.plan.live_bytes import LiveBytes
from slipway.trainer.plan.measure import StageMeasure
from slipway.trainer.plan.question import Question, with_fields
from slipway.trainer.plan.step import PlannedStep
from slipway.trainer.step.microbatch import blank
from slipway.trainer.step.stages import blocks_of, stages_of

FEW = 3
MORE = 5
"""A deep model is run with these numbers of blocks in a stage instead."""
PARTS_PER_STAGE = 2
"""The micro-batches of a run, for each stage: the second one adds its gradients to those of the first."""


@dataclass(frozen=True)
class Extent:
    """How much of a training is run: blocks of each rank of the pipeline, and micro-batches of a step."""

    blocks: int
    parts: int


def measure(question: Question) -> list[StageMeasure]:
    """The measure of a rank of each stage. Raises ValueError for a layout that does not fit."""
    return [_stage(question, stage) for stage in range(question.mesh.pipeline)]


def _stage(question: Question, stage: int) -> StageMeasure:
    """The measure at full extent; if work is repeated, from measures at smaller extents."""
    full = _full_extent(question, stage)
    per_rank = question.layout.stages_per_rank
    few, more = (-(-least // per_rank) * per_rank for least in (FEW, MORE))
    blocks = (few, max(more, few + per_rank))
    if full.blocks <= blocks[1] or not hasattr(question.model, "layers"):
        blocks = (full.blocks,) * 2
    least = PARTS_PER_STAGE * question.mesh.pipeline
    rounds = question.mesh.pipeline if question.layout.schedule == "interleaved" else 1
    parts = (least, least + rounds) if full.parts > least else (full.parts,) * 2
    rank = stage * question.mesh.ranks // question.mesh.pipeline
    first = _run(question, rank, Extent(blocks[0], parts[0]))
    estimate = first
    if blocks[1] > blocks[0]:
        deeper = _run(question, rank, Extent(blocks[1], parts[0]))
        estimate = estimate.plus(deeper.minus(first), (full.blocks - blocks[0]) / (blocks[1] - blocks[0]))
    if parts[1] > parts[0]:
        longer = _run(question, rank, Extent(blocks[0], parts[1]))
        estimate = estimate.plus(longer.minus(first), (full.parts - parts[0]) / rounds)
    return dataclasses.replace(estimate, ranks=question.ranks // question.mesh.pipeline)


def _full_extent(question: Question, stage: int) -> Extent:
    mesh = question.mesh
    batch = question.batch
    layers = getattr(question.model, "layers", question.model.stages)
    per_rank = question.layout.stages_per_rank
    blocks = blocks_of(layers, stages_of(stage, mesh.pipeline, per_rank), mesh.pipeline * per_rank)
    return Extent(len(blocks), micro_batches(batch.sequences, batch.micro, mesh.data))


def _run(question: Question, rank: int, extent: Extent) -> StageMeasure:
    """The measure of a step of that extent on one rank; where DDP joins ranks, only on the first one of a stage."""
    mesh = question.mesh
    copies = mesh.gradient_ranks if _replicates(question) else 1
    count = micro_batches(question.batch.sequences, question.batch.micro, mesh.data)
    samples = extent.parts * -(-question.batch.sequences // mesh.data // count)
    if copies > 1:
        stage = mesh.stage(rank)
        mesh = Mesh(pipeline=mesh.pipeline, replicas=mesh.context, context=mesh.context)
        rank = stage * mesh.gradient_ranks
    less = _shortened(question, extent, samples, mesh.data)
    kernels = gpu_kernels() if question.kernels == "cuda" else contextlib.nullcontext()
    with _fake_ranks(rank, mesh.ranks), FakeTensorMode(allow_non_fake_inputs=True), LiveBytes() as live, kernels:
        world = World(rank, mesh.ranks, 0, torch.device("cpu"), mesh)
        estimate = PlannedStep(less, world, live).run(blank(less.data, samples, less.model.reads_documents), samples)
    return estimate.with_copies(copies) if copies > 1 else estimate


def _replicates(question: Question) -> bool:
    """Whether DDP joins the data-parallel ranks. Its reducer needs real answers, so its buckets are only added."""
    layout = question.layout
    alone = question.communication.local_steps > 1
    return layout.shard == "none" and layout.tensor == 1 and question.mesh.gradient_ranks > 1 and not alone


def _shortened(question: Question, extent: Extent, samples: int, shares: int) -> Question:
    """The question of a step of that extent, in a precision that fake tensors of a CPU have."""
    shorter: dict[str, Mapping[str, Any]] = {
        "batch": {"sequences": samples * shares, "micro": samples // extent.parts},
        "layout": {"compile": False},
        "run": {"precision": "bf16" if question.run.precision == "fp8" else question.run.precision},
    }
    if hasattr(question.model, "layers"):
        shorter["model"] = {"layers": extent.blocks * question.mesh.pipeline}
    return with_fields(question, **shorter)


@contextlib.contextmanager
def _fake_ranks(rank: int, size: int) -> Iterator[None]:
    """A world of `size` ranks of which this process is one, and the others answer nothing."""
    if size > 1:
        dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        if size > 1:
            dist.destroy_process_group()
