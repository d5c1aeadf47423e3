"""Copies: ranks that hold the same part of the weights must hold the same bits; sums over the bits are compared.

Without this check, a rank whose memory flipped a bit, or that drew other random numbers, would train on, and its
gradients would spoil all the others. The sums are over integers: they have no rounding and do not depend on the order.
They cost one pass over this rank's weights.
"""

from collections import Counter
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from slipway.trainer.config.layout import Mesh
from slipway.trainer.node.world import World
from slipway.trainer.record import causes
from slipway.trainer.start.divided import is_divided

WHOLE_NUMBERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of an element."""
SHARDS = 1
TENSOR = 2
"""A parameter's class is the sum of these: divided by FSDP, by tensor parallelism, by both, or by neither."""
CLASSES = 4

Sums = Sequence[int]
"""A rank's sums, by class."""


class Drifted(causes.Failure):
    """Ranks hold different copies of the same weights."""

    kind = causes.CORRUPTION

    def __init__(self, message: str, ranks: tuple[int, ...], nodes: tuple[str, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.nodes = nodes


def check(model: nn.Module, world: World, step: int, node: str) -> None:
    """Compare the copies of all ranks, which call it at the same time. Raises Drifted on all of them."""
    if world.size == 1:
        return
    own_sums = sums(model, world.device)
    all_sums = [torch.empty_like(own_sums) for _ in range(world.size)]
    dist.all_gather(all_sums, own_sums)
    apart = differing(torch.stack(all_sums).tolist(), world.mesh)
    if apart:
        nodes = world.all_gather(node)
        named = ", ".join(f"{rank} ({nodes[rank]})" for rank in apart)
        raise Drifted(
            f"the weights of ranks {named} differ after step {step} from those of ranks that should have the same: "
            "a fault of the hardware, or randomness of the model's own",
            tuple(apart),
            tuple(dict.fromkeys(nodes[rank] for rank in apart)),
        )


def sums(model: nn.Module, device: torch.device) -> Tensor:
    """The sums over the bits of this rank's weights, one for each class; an overflow wraps, on every rank alike."""
    totals = torch.zeros(CLASSES, dtype=torch.int64, device=device)
    for index, parameter in enumerate(model.parameters(), 1):
        local = parameter.to_local() if is_divided(parameter) else parameter
        local = local.detach().contiguous()
        totals[_class(parameter)] += index * local.view(WHOLE_NUMBERS[local.element_size()]).sum(dtype=torch.int64)
    return totals


def differing(rank_sums: Sequence[Sums], mesh: Mesh) -> list[int]:
    """The ranks that differ from the majority of the ranks with the same part; all of these without a majority."""
    apart: set[int] = set()
    for kind in range(CLASSES):
        groups: dict[tuple[int, ...], list[int]] = {}
        for rank in range(mesh.ranks):
            groups.setdefault(_part(rank, mesh, kind), []).append(rank)
        for ranks in groups.values():
            (value, count), *others = Counter(rank_sums[rank][kind] for rank in ranks).most_common()
            if others:
                apart |= {rank for rank in ranks if 2 * count <= len(ranks) or rank_sums[rank][kind] != value}
    return sorted(apart)


def _part(rank: int, mesh: Mesh, kind: int) -> tuple[int, ...]:
    """A key for the part that a rank holds of the parameters of this class: stage, shard, tensor-parallel rank."""
    shard = 0
    if kind & SHARDS:
        shard = mesh.gradient_rank(rank) % mesh.shards
    tensor = 0
    if kind & TENSOR:
        tensor = rank % mesh.tensor
    return mesh.stage(rank), shard, tensor


def _class(parameter: nn.Parameter) -> int:
    if not is_divided(parameter):
        return 0
    names = parameter.device_mesh.mesh_dim_names or ()
    cut = {name for name, placement in zip(names, parameter.placements, strict=True) if not placement.is_replicate()}
    return SHARDS * ("shards" in cut) + TENSOR * ("tensor" in cut)
