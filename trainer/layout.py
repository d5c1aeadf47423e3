"""The mesh of ranks: which rank holds what, worked out from the layout, the number of ranks and the model's shape.

Arithmetic alone, without torch, so that recipes, the launching asset and every rank refuse the same layouts in the
same words before anything is started.
"""

from dataclasses import dataclass
from typing import Protocol

from trainer.invalid import Invalid
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


class Unfit(Invalid):
    """A value that does not fit others."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(field, f"found {found}, expected {expected}")
        self.found, self.expected = str(found), expected


def check(settings: Settings, ranks: int, ranks_per_node: int) -> Mesh:
    """The mesh of these ranks. Raises Unfit with the numbers that do not fit."""
    _check_tensor(settings, ranks_per_node)
    mesh = _mesh(settings.layout, ranks, ranks_per_node)
    _check_pipeline(settings, mesh)
    _check_activations(settings)
    if settings.batch.sequences < mesh.data:
        expected = f"{mesh.data} (a sequence for each {_shares(mesh)}) or more"
        raise Unfit("batch.sequences", settings.batch.sequences, expected)
    return mesh


def micro_batches(sequences: int, micro: int, shares: int) -> int:
    """Into how many micro-batches of at most `micro` samples every share of a batch is cut: as many for each."""
    largest = -(-sequences // shares)
    return -(-largest // micro)


def _mesh(layout: Layout, ranks: int, ranks_per_node: int) -> Mesh:
    if ranks % (layout.pipeline * layout.tensor):
        found = f"{layout.pipeline} (x tensor {layout.tensor})"
        raise Unfit("layout.pipeline", found, f"a divisor of {ranks} ranks")
    data = ranks // (layout.pipeline * layout.tensor)
    if layout.shard != "hybrid" and layout.shard_ranks:
        raise Unfit("layout.shard_ranks", layout.shard_ranks, "0, as only hybrid has groups of ranks")
    shards = layout.shard_ranks or max(1, min(data, ranks_per_node // layout.tensor))
    shards = {"none": 1, "full": data, "hybrid": shards}[layout.shard]
    if data % shards:
        raise Unfit("layout.shard_ranks", f"{shards} ranks a group", f"a divisor of {data} data-parallel ranks")
    return Mesh(layout.pipeline, data // shards, shards, layout.tensor)


def _check_tensor(settings: Settings, ranks_per_node: int) -> None:
    """Ranks that share matrices talk twice a block: they must be of one node, and divide what they share."""
    tensor, shape = settings.layout.tensor, settings.model
    if tensor == 1:
        return
    if ranks_per_node % tensor:
        expected = f"a divisor of the {ranks_per_node} ranks of a node (a node is a machine, a rank is a GPU)"
        raise Unfit("layout.tensor", tensor, expected)
    if not shape.divided:
        raise Unfit("layout.tensor", tensor, f"1, as a model of kind {shape.kind} cannot be divided")
    for name, value in shape.divided.items():
        if value % tensor:
            raise Unfit("layout.tensor", tensor, f"a divisor of model.{name} ({value})")
    if settings.run.precision == "fp8":
        raise Unfit("layout.tensor", tensor, "1 with fp8, whose scales are of whole matrices")


def _check_pipeline(settings: Settings, mesh: Mesh) -> None:
    if mesh.pipeline == 1:
        return
    shape, batch, stages = settings.model, settings.batch, mesh.pipeline
    if stages > shape.stages:
        expected = f"{shape.stages} at most, the stages that a model of this kind ({shape.kind}) can be cut into"
        raise Unfit("layout.pipeline", stages, expected)
    count = micro_batches(batch.sequences, batch.micro, mesh.data)
    if settings.layout.schedule == "1f1b" and count < stages:
        cut = (
            f"batch.sequences {batch.sequences} over {mesh.data} {_shares(mesh)}s in parts of batch.micro {batch.micro}"
        )
        raise Unfit("layout.pipeline", stages, f"{count} at most, the micro-batches of a rank ({cut}), or gpipe")


def _check_activations(settings: Settings) -> None:
    layout, shape = settings.layout, settings.model
    if layout.activations != "keep" and not shape.recomputes:
        expected = f"keep, as a block of a model of kind {shape.kind} may not be run twice"
        raise Unfit("layout.activations", layout.activations, expected)


def _shares(mesh: Mesh) -> str:
    """What has a share of a batch, in words."""
    return "rank" if mesh.data == mesh.ranks else "data-parallel rank"
