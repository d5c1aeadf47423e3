"""The mesh of ranks: which rank holds what, worked out from the layout, the number of ranks and the model's shape.

Arithmetic alone, without torch, so that recipes, the launching asset and every rank refuse the same layouts in the
same words before anything is started.
"""

from dataclasses import dataclass
from typing import Protocol

from trainer.invalid import Invalid, require
from trainer.operation import Layout
from trainer.sections import Batch, Run
from trainer.shapes import DecoderShape, EncoderShape, Shape, VisionShape

Transformer = DecoderShape | EncoderShape | VisionShape


class Settings(Protocol):
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
    """Ranks along four axes; neighbours along the last one have neighbouring numbers, as the ranks of a node have."""

    pipeline: int = 1
    replicas: int = 1
    shards: int = 1
    tensor: int = 1

    @property
    def ranks(self) -> int:
        return self.pipeline * self.data * self.tensor

    @property
    def data(self) -> int:
        """Into how many shares a batch is divided."""
        return self.replicas * self.shards

    def stage(self, rank: int) -> int:
        """Which part of the layers this rank has."""
        return rank // (self.data * self.tensor)

    def data_rank(self, rank: int) -> int:
        """Which share of a batch this rank has."""
        return rank // self.tensor % self.data

    def answers(self, rank: int) -> bool:
        """Whether this rank's losses count: of those that share a batch, one of the last stage."""
        return self.stage(rank) == self.pipeline - 1 and rank % self.tensor == 0


def check(settings: Settings, ranks: int, ranks_per_node: int) -> Mesh:
    """The mesh of these ranks. Raises Invalid with the numbers that do not fit."""
    mesh = _mesh(settings.layout, ranks, ranks_per_node)
    _check_tensor(settings, mesh.tensor, ranks_per_node)
    _check_pipeline(settings, mesh)
    found, least = settings.batch.sequences, mesh.data
    require(found >= least, "batch.sequences", f"found {found}, expected {least} ({_shares(mesh)}) or more")
    return mesh


def micro_batches(sequences: int, micro: int, shares: int) -> int:
    """Into how many micro-batches of at most `micro` samples every share of a batch is cut: as many for each."""
    largest = -(-sequences // shares)
    return -(-largest // micro)


def _mesh(layout: Layout, ranks: int, ranks_per_node: int) -> Mesh:
    group = layout.pipeline * layout.tensor
    field = "layout.pipeline" if layout.pipeline > 1 else "layout.tensor"
    named = f"{layout.pipeline} (pipeline) x {layout.tensor} (tensor)"
    require(ranks % group == 0, field, f"found {named}, expected a divisor of {ranks} ranks")
    data = ranks // group
    if layout.shard != "hybrid":
        found = layout.shard_ranks
        require(found == 0, "layout.shard_ranks", f"found {found}, expected 0: only hybrid has groups of ranks")
    if layout.shard == "none":
        return Mesh(layout.pipeline, data, 1, layout.tensor)
    if layout.shard == "full":
        return Mesh(layout.pipeline, 1, data, layout.tensor)
    shards = layout.shard_ranks or max(1, min(data, ranks_per_node // layout.tensor))
    message = f"found {shards} ranks a group, expected a divisor of {data} data-parallel ranks"
    require(data % shards == 0, "layout.shard_ranks", message)
    return Mesh(layout.pipeline, data // shards, shards, layout.tensor)


def _check_tensor(settings: Settings, tensor: int, ranks_per_node: int) -> None:
    """Ranks that share matrices talk twice a block: they must be of one node, and divide what they share."""
    if tensor == 1:
        return
    wanted = f"expected a divisor of the {ranks_per_node} ranks of a node (a node is a machine, a rank a GPU)"
    require(ranks_per_node % tensor == 0, "layout.tensor", f"found {tensor}, {wanted}")
    for name, value in _divided(settings.model).items():
        require(value % tensor == 0, "layout.tensor", f"found {tensor}, expected a divisor of model.{name} ({value})")
    fp8 = settings.run.precision == "fp8"
    require(not fp8, "layout.tensor", f"found {tensor}, expected 1 with fp8, whose scales are of whole matrices")


def _divided(shape: Shape) -> dict[str, int]:
    """What tensor parallelism divides in a model of this shape, by field."""
    if not isinstance(shape, Transformer):
        raise Invalid("layout.tensor", f"expected 1: the matrices of a {shape.kind} are not divided")
    sizes = {"heads": shape.heads, "hidden": shape.hidden}
    return {**sizes, "kv_heads": shape.kv_heads} if isinstance(shape, DecoderShape) else sizes


def _check_pipeline(settings: Settings, mesh: Mesh) -> None:
    if mesh.pipeline == 1:
        return
    shape, batch, stages = settings.model, settings.batch, mesh.pipeline
    if not isinstance(shape, Transformer):
        raise Invalid("layout.pipeline", f"expected 1: the blocks of a {shape.kind} are not alike")
    require(
        stages <= shape.layers, "layout.pipeline", f"found {stages}, expected model.layers ({shape.layers}) at most"
    )
    count = micro_batches(batch.sequences, batch.micro, mesh.data)
    found = f"found {stages}, but a rank's share of a batch is {count} micro-batches"
    share = f"batch.sequences {batch.sequences} / {_shares(mesh)} / batch.micro {batch.micro}"
    fits = settings.layout.schedule == "gpipe" or count >= stages
    require(fits, "layout.pipeline", f"{found} ({share}); expected as many as stages, or schedule gpipe")


def _shares(mesh: Mesh) -> str:
    """The data-parallel ranks in words."""
    return "ranks" if mesh.data == mesh.ranks else "data-parallel ranks"
