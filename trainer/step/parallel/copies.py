"""Copies: ranks that hold the same part of the weights must hold the same bits; a sum over the bits shows when not.

Nothing else notices: a rank whose memory flipped a bit, or that drew other random numbers, trains on, and its gradients
spoil all the others. The sum is over whole numbers, so that it has no rounding and no order; to take it costs one pass
over this rank's weights.
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
SHARDS, TENSOR = 1, 2
"""How a parameter is divided: neither, one, or both; the sum of these is its class."""
CLASSES = 4

Sums = Sequence[int]
"""A rank's sums, by class."""


class Drifted(causes.Failure):
    """Ranks hold different copies of what should be the same."""

    kind = causes.CORRUPTION

    def __init__(self, message: str, ranks: tuple[int, ...], nodes: tuple[str, ...]) -> None:
        super().__init__(message)
        self.ranks, self.nodes = ranks, nodes


def check(model: nn.Module, world: World, step: int, node: str) -> None:
    """Compare the copies of all ranks, which call it at once. Raises Drifted on all of them, with those that differ."""
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
    """The sums over the bits of this rank's weights, one for each class; what overflows wraps, on every rank alike."""
    totals = torch.zeros(CLASSES, dtype=torch.int64, device=device)
    for index, parameter in enumerate(model.parameters(), 1):
        local = (parameter.to_local() if is_divided(parameter) else parameter).detach().contiguous()
        totals[_class(parameter)] += index * local.view(WHOLE_NUMBERS[local.element_size()]).sum(dtype=torch.int64)
    return totals


def differing(rank_sums: Sequence[Sums], mesh: Mesh) -> list[int]:
    """The ranks whose sums differ from those of most ranks with the same part; all of them without a majority."""
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
    """What decides which part of a parameter of this class a rank holds."""
    shard, tensor = mesh.gradient_rank(rank) % mesh.shards, rank % mesh.tensor
    return mesh.stage(rank), shard if kind & SHARDS else 0, tensor if kind & TENSOR else 0


def _class(parameter: nn.Parameter) -> int:
    if not is_divided(parameter):
        return 0
    names = parameter.device_mesh.mesh_dim_names or ()
    cut = {name for name, placement in zip(names, parameter.placements, strict=True) if not placement.is_replicate()}
    return SHARDS * ("shards" in cut) + TENSOR * ("tensor" in cut)
