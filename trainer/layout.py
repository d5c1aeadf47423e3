"""The mesh of ranks: which rank holds what, worked out from the layout, the number of ranks and the model's shape.

Arithmetic alone, without torch, so that recipes, the launching asset and every rank refuse the same layouts in the
same words before anything is started.
"""

from dataclasses import dataclass
from typing import Protocol

from trainer.invalid import require
from trainer.operation import Layout
from trainer.sections import Batch, Run
from trainer.shapes import Shape


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
    keeps = settings.layout.activations == "keep" or settings.model.recomputes
    require(keeps, "layout.activations", f"expected keep: a block of a {settings.model.kind} may not be run twice")
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
    require(bool(settings.model.divided), "layout.tensor", f"expected 1: a {settings.model.kind} cannot be divided")
    for name, value in settings.model.divided.items():
        require(value % tensor == 0, "layout.tensor", f"found {tensor}, expected a divisor of model.{name} ({value})")
    fp8 = settings.run.precision == "fp8"
    require(not fp8, "layout.tensor", f"found {tensor}, expected 1 with fp8, whose scales are of whole matrices")


def _check_pipeline(settings: Settings, mesh: Mesh) -> None:
    if mesh.pipeline == 1:
        return
    shape, batch, stages = settings.model, settings.batch, mesh.pipeline
    most = f"found {stages}, expected {shape.stages} at most: the stages that such a {shape.kind} can be cut into"
    require(stages <= shape.stages, "layout.pipeline", most)
    count = micro_batches(batch.sequences, batch.micro, mesh.data)
    found = f"found {stages}, but a rank's share of a batch is {count} micro-batches"
    share = f"batch.sequences {batch.sequences} / {_shares(mesh)} / batch.micro {batch.micro}"
    fits = settings.layout.schedule == "gpipe" or count >= stages
    require(fits, "layout.pipeline", f"{found} ({share}); expected as many as stages, or schedule gpipe")


def _shares(mesh: Mesh) -> str:
    """The data-parallel ranks in words."""
    return "ranks" if mesh.data == mesh.ranks else "data-parallel ranks"
