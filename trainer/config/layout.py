"""The mesh of ranks: which rank holds what, computed from the layout, the number of ranks and the model's shape.

It is arithmetic alone, without torch, so that recipes, the training asset and every rank refuse the same layouts with
the same message before a training starts.
"""

import contextlib
from dataclasses import dataclass
from typing import Protocol

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.sections import Batch, Run
from slipway.trainer.config.shapes import Shape


class LayoutSettings(Protocol):
    """What decides a mesh: a configuration has it, and so has a recipe."""

    @property
    def layout(self) -> Layout: ...
    @property
    def model(self) -> Shape: ...
    @property
    def batch(self) -> Batch: ...
    @property
    def run(self) -> Run: ...


@dataclass(frozen=True)
class Mesh:
    """Ranks along four axes; neighbours along the last axis have consecutive numbers, as the ranks of a node have.

    Along replicas and shards, each `context` neighbours have the same samples, and each of them a part of every
    sequence. For weights and gradients they are ranks like all others there.
    """

    pipeline: int = 1
    replicas: int = 1
    shards: int = 1
    tensor: int = 1
    context: int = 1

    def __post_init__(self) -> None:
        assert self.gradient_ranks % self.context == 0

    @property
    def ranks(self) -> int:
        return self.pipeline * self.gradient_ranks * self.tensor

    @property
    def gradient_ranks(self) -> int:
        """How many ranks average each gradient, as each has other samples, or another part of the same ones."""
        return self.replicas * self.shards

    @property
    def data(self) -> int:
        """How many shares a batch is divided into."""
        return self.gradient_ranks // self.context

    def stage(self, rank: int) -> int:
        """The part of the layers that this rank has."""
        return rank // (self.gradient_ranks * self.tensor)

    def gradient_rank(self, rank: int) -> int:
        """The place of this rank among those that average its gradients."""
        return rank // self.tensor % self.gradient_ranks

    def data_rank(self, rank: int) -> int:
        """The share of a batch that this rank has."""
        return self.gradient_rank(rank) // self.context

    def context_rank(self, rank: int) -> int:
        """The part of each sequence that this rank has."""
        return rank // self.tensor % self.context

    def drawing_part(self, rank: int) -> int:
        """A number for what this rank has of its samples' activations, of a stage and of every sequence.

        Ranks of one share of a batch with the same number hold some activations in common, and must drop them alike.
        """
        return self.stage(rank) + self.pipeline * self.context_rank(rank)

    def context_groups(self) -> list[list[int]]:
        """The ranks that share sequences with each other."""
        apart = self.context * self.tensor
        begins = (block + tensor for block in range(0, self.ranks, apart) for tensor in range(self.tensor))
        return [list(range(begin, begin + apart, self.tensor)) for begin in begins]

    def counts_losses(self, rank: int) -> bool:
        """Whether this rank's losses count: one rank of the last stage counts for all that share matrices."""
        return self.stage(rank) == self.pipeline - 1 and rank % self.tensor == 0


class UnfitLayout(Invalid):
    """A value that does not fit others."""

    def __init__(self, field: str, actual: object, expected: str) -> None:
        super().__init__(field, f"found {actual}, expected {expected}")
        self.actual = str(actual)
        self.expected = expected


def check(settings: LayoutSettings, ranks: int, ranks_per_node: int) -> Mesh:
    """The mesh of these ranks. Raises UnfitLayout with the numbers that do not fit."""
    _check_tensor(settings, ranks_per_node)
    mesh = _mesh(settings.layout, ranks, ranks_per_node)
    _check_context(settings)
    _check_pipeline(settings, mesh)
    _check_activations(settings)
    if settings.batch.sequences < mesh.data:
        expected = f"{mesh.data} (a sequence for each {_shares(mesh)}) or more"
        raise UnfitLayout("batch.sequences", settings.batch.sequences, expected)
    return mesh


def fitting(settings: LayoutSettings, ranks_per_node: int, nodes: int) -> int:
    """The most nodes, at most so many, on which the layout has a mesh; 0 where it has none."""
    for count in range(nodes, 0, -1):
        with contextlib.suppress(Invalid):
            check(settings, count * ranks_per_node, ranks_per_node)
            return count
    return 0


def micro_batches(sequences: int, micro: int, shares: int) -> int:
    """The number of micro-batches, of at most `micro` samples, that every share of a batch is cut into."""
    largest = -(-sequences // shares)
    return -(-largest // micro)


def waiting(layout: Layout, parts: int) -> float:
    """The share of a step in which a rank of the pipeline waits for others, with so many micro-batches.

    (p - 1) / (v m + p - 1) for p ranks of v stages, m micro-batches, and forward and backward passes that take equally
    long everywhere (Narayanan et al., arXiv:2104.04473, section 2.2).
    """
    return (layout.pipeline - 1) / (layout.stages_per_rank * parts + layout.pipeline - 1)


def in_flight(layout: Layout, stage: int, parts: int) -> int:
    """The most micro-batches of a step whose activations a rank keeps at once, each of one of its stages.

    stage: the rank's place in the pipeline; parts: the micro-batches of a step.
    """
    ranks = layout.pipeline
    stages_per_rank = layout.stages_per_rank
    after = ranks - 1 - stage
    before = {"1f1b": after, "gpipe": parts, "interleaved": (stages_per_rank - 1) * ranks + 2 * after}[layout.schedule]
    return min(before + 1, stages_per_rank * parts)


def _mesh(layout: Layout, ranks: int, ranks_per_node: int) -> Mesh:
    if ranks % (layout.pipeline * layout.tensor):
        actual = f"{layout.pipeline} (x tensor {layout.tensor})"
        raise UnfitLayout("layout.pipeline", actual, f"a divisor of {ranks} ranks")
    data = ranks // (layout.pipeline * layout.tensor)
    if layout.shard != "hybrid" and layout.shard_ranks:
        raise UnfitLayout("layout.shard_ranks", layout.shard_ranks, "0, as only hybrid has groups of ranks")
    shards = layout.shard_ranks or max(1, min(data, ranks_per_node // layout.tensor))
    shards = {"none": 1, "full": data, "hybrid": shards}[layout.shard]
    if data % shards:
        raise UnfitLayout("layout.shard_ranks", f"{shards} ranks a group", f"a divisor of {data} data-parallel ranks")
    if data % layout.context:
        expected = f"a divisor of {data}, the ranks that are left for each stage and part of a matrix"
        raise UnfitLayout("layout.context", layout.context, expected)
    return Mesh(layout.pipeline, data // shards, shards, layout.tensor, layout.context)


def _check_tensor(settings: LayoutSettings, ranks_per_node: int) -> None:
    """Ranks that share matrices communicate twice a block: they must be of one node, and divide what they share."""
    tensor = settings.layout.tensor
    shape = settings.model
    if tensor == 1:
        return
    if ranks_per_node % tensor:
        expected = f"a divisor of the {ranks_per_node} ranks of a node (a node is a machine, a rank is a GPU)"
        raise UnfitLayout("layout.tensor", tensor, expected)
    if not shape.divided:
        raise UnfitLayout("layout.tensor", tensor, f"1, as a model of kind {shape.kind} cannot be divided")
    for name, value in shape.divided.items():
        if value % tensor:
            raise UnfitLayout("layout.tensor", tensor, f"a divisor of model.{name} ({value})")


def _check_context(settings: LayoutSettings) -> None:
    """Each of the ranks that share a sequence has two pieces of it."""
    context = settings.layout.context
    shape = settings.model
    length = settings.batch.length
    if context == 1:
        return
    if not shape.shares_sequences:
        expected = f"1, as a model of kind {shape.kind} needs whole sequences on each rank"
        raise UnfitLayout("layout.context", context, expected)
    if length % (2 * context):
        expected = f"a number whose double ({2 * context}) divides batch.length ({length}): a rank has two pieces"
        raise UnfitLayout("layout.context", context, expected)


def _check_interleaving(layout: Layout) -> None:
    """Several stages of a rank, and the order that needs them, go together."""
    stages_per_rank = layout.stages_per_rank
    interleaved = layout.schedule == "interleaved"
    if interleaved and layout.pipeline == 1:
        raise UnfitLayout("layout.schedule", "interleaved", "1f1b, as layout.pipeline is 1")
    if interleaved and stages_per_rank == 1:
        raise UnfitLayout("layout.stages_per_rank", 1, "2 or more, as layout.schedule is interleaved")
    if stages_per_rank > 1 and not interleaved:
        raise UnfitLayout(
            "layout.stages_per_rank", stages_per_rank, f"1, as layout.schedule is {layout.schedule}, or interleaved"
        )


def _check_pipeline(settings: LayoutSettings, mesh: Mesh) -> None:
    _check_interleaving(settings.layout)
    if mesh.pipeline == 1:
        return
    shape = settings.model
    batch = settings.batch
    stages_per_rank = settings.layout.stages_per_rank
    ranks = mesh.pipeline
    if ranks * stages_per_rank > shape.stages:
        why = ", as the first and the last stage would share a tied embedding" if getattr(shape, "tied", False) else ""
        expected = f"{shape.stages} at most, the stages that a model of this kind ({shape.kind}) can be cut into{why}"
        actual = f"{ranks}" + (f" (x stages_per_rank {stages_per_rank})" if stages_per_rank > 1 else "")
        raise UnfitLayout("layout.pipeline", actual, expected)
    count = micro_batches(batch.sequences, batch.micro, mesh.data)
    cut = f"batch.sequences {batch.sequences} over {mesh.data} {_shares(mesh)}s in parts of batch.micro {batch.micro}"
    if settings.layout.schedule == "1f1b" and count < ranks:
        raise UnfitLayout("layout.pipeline", ranks, f"{count} at most, the micro-batches of a rank ({cut}), or gpipe")
    if settings.layout.schedule == "interleaved" and count % ranks:
        expected = f"a divisor of {count}, the micro-batches of a rank ({cut}), as interleaved demands, or 1f1b"
        raise UnfitLayout("layout.pipeline", ranks, expected)


def _check_activations(settings: LayoutSettings) -> None:
    layout = settings.layout
    shape = settings.model
    if layout.activations != "keep" and not shape.recomputes:
        expected = f"keep, as a block of a model of kind {shape.kind} may not be run twice"
        raise UnfitLayout("layout.activations", layout.activations, expected)


def _shares(mesh: Mesh) -> str:
    """The word for a rank that has a share of a batch."""
    return "rank" if mesh.data == mesh.ranks else "data-parallel rank"
