"""Sharing: the products that orthogonalise Muon's matrices, divided between ranks instead of repeated on each.

Every matrix has one owner, which alone computes its products; the owners get about equal work. If ranks hold whole
matrices (DDP), they gather the owners' results. If each holds some of the rows (FSDP), the owner gets the others' rows
and returns their updates. Matrices travel in bf16, in which they are multiplied, so every bit is the same as without
sharing. Matrices that are divided in another way (tensor parallelism) are gathered and computed by every rank that has
a part.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from slipway.trainer.start.divided import is_divided

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

ROUND_BYTES = 2**30
"""The whole matrices that a rank holds at a time, in bf16."""
ROUNDS = 5
"""Iterations of Newton-Schulz."""
EPSILON = 1e-7


def rounds(matrices: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The matrices in groups of at most `ROUND_BYTES`, or of one matrix; equal shapes are next to each other."""
    chosen: list[Tensor] = []
    size = 0
    for matrix in sorted(matrices, key=lambda matrix: (matrix.shape[0], matrix.shape[1]), reverse=True):
        if chosen and size + 2 * matrix.numel() > ROUND_BYTES:
            yield chosen
            chosen = []
            size = 0
        chosen.append(matrix)
        size += 2 * matrix.numel()
    if chosen:
        yield chosen


def owners(shapes: Sequence[Sequence[int]], ranks: int) -> list[int]:
    """The rank that computes each matrix: the most costly ones first, each by the rank that has the least so far."""
    load = [0] * ranks
    chosen = [0] * len(shapes)
    for index in sorted(range(len(shapes)), key=lambda index: -_cost(shapes[index])):
        chosen[index] = load.index(min(load))
        load[chosen[index]] += _cost(shapes[index])
    return chosen


def orthogonalised(matrices: Sequence[Tensor], group: ProcessGroup | None) -> list[Tensor]:
    """Each matrix orthogonalised in bf16, in its layout; all ranks call it with the same matrices at the same time."""
    results: dict[int, Tensor] = {}
    for indices, mesh in _alike(matrices):
        chosen = [matrices[index] for index in indices]
        if mesh is not None:
            done = _of_rows(chosen, mesh)
        elif is_divided(chosen[0]):
            done = [_by_everybody(matrix) for matrix in chosen]
        elif group is not None and group.size() > 1:
            done = _of_copies(chosen, group)
        else:
            done = [orthogonal(matrix) for matrix in chosen]
        results |= dict(zip(indices, done, strict=True))
    return [results[index] for index in range(len(matrices))]


def orthogonal(matrix: Tensor) -> Tensor:
    """U S V^T with all singular values between about 0.5 and 1.5 instead of 1, in bf16.

    Newton-Schulz with the quintic of https://kellerjordan.github.io/posts/muon/.
    """
    a = 3.4445
    b = -4.7750
    c = 2.0315
    x = matrix.bfloat16()
    tall = matrix.shape[0] > matrix.shape[1]
    if tall:
        x = x.T
    x = x / x.norm().clamp(min=EPSILON)
    for _ in range(ROUNDS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _cost(shape: Sequence[int]) -> int:
    """The cost of one iteration's products, up to a factor: two with the long side and one without."""
    short = min(shape)
    long = max(shape)
    return short * short * (2 * long + short)


def _alike(matrices: Sequence[Tensor]) -> list[tuple[list[int], "DeviceMesh | None"]]:
    """Groups of matrices with the same layout: their indices, and the mesh whose ranks have their rows (or None)."""
    kinds: dict[object, tuple[list[int], DeviceMesh | None]] = {}
    for index, matrix in enumerate(matrices):
        mesh = _rows_of(matrix)
        kinds.setdefault((is_divided(matrix), mesh), ([], mesh))[0].append(index)
    return list(kinds.values())


def _rows_of(matrix: Tensor) -> "DeviceMesh | None":
    """The mesh whose ranks have consecutive rows of a matrix, in their order; None for any other layout."""
    if not is_divided(matrix):
        return None
    mesh = matrix.device_mesh
    axes = [axis for axis, placement in enumerate(matrix.placements) if not placement.is_replicate()]
    if len(axes) != 1 or not matrix.placements[axes[0]].is_shard(0):
        return None
    if mesh.ndim == 1:
        return mesh
    assert mesh.mesh_dim_names is not None
    return mesh[mesh.mesh_dim_names[axes[0]]]


def _of_copies(matrices: Sequence[Tensor], group: ProcessGroup) -> list[Tensor]:
    """Orthogonalise matrices that every rank holds whole: each rank computes its own, and all gather the results."""
    ranks = group.size()
    own_rank = dist.get_rank(group)
    owner = owners([matrix.shape for matrix in matrices], ranks)
    sizes = [sum(matrix.numel() for matrix, own in zip(matrices, owner, strict=True) if own == r) for r in range(ranks)]
    most = max(sizes)
    device = matrices[0].device
    own = [orthogonal(matrix).flatten() for matrix, rank in zip(matrices, owner, strict=True) if rank == own_rank]
    sent = torch.cat([*own, torch.zeros(most - sizes[own_rank], dtype=torch.bfloat16, device=device)])
    gathered = torch.empty(ranks * most, dtype=torch.bfloat16, device=device)
    dist.all_gather_single(gathered, sent, group=group)
    begins = [rank * most for rank in range(ranks)]
    results = []
    for matrix, rank in zip(matrices, owner, strict=True):
        results.append(gathered[begins[rank] : begins[rank] + matrix.numel()].view(matrix.shape))
        begins[rank] += matrix.numel()
    return results


def _of_rows(matrices: Sequence[Tensor], mesh: "DeviceMesh") -> list[Tensor]:
    """Orthogonalise matrices whose rows are divided: the owner gets all rows, and returns each rank its rows."""
    from torch.distributed.tensor import DTensor

    ranks = mesh.size()
    own_rank = mesh.get_local_rank()
    group = mesh.get_group()
    owner = owners([matrix.shape for matrix in matrices], ranks)
    locals_ = [matrix.to_local() if is_divided(matrix) else matrix for matrix in matrices]
    in_order = sorted(range(len(matrices)), key=lambda index: owner[index])
    own = [index for index in in_order if owner[index] == own_rank]
    rows = {index: _rows(matrices[index].shape[0], ranks) for index in own}
    out = [sum(locals_[p].numel() for p in in_order if owner[p] == rank) for rank in range(ranks)]
    come = [sum(rows[p][rank] * matrices[p].shape[1] for p in own) for rank in range(ranks)]
    sent = torch.cat([locals_[index].bfloat16().flatten() for index in in_order])
    got = _exchanged(sent, out, come, group)
    wholes = [orthogonal(matrix) for matrix in _joined(got, come, [(rows[p], matrices[p].shape[1]) for p in own])]
    parts = [torch.split(full_update, rows[index]) for index, full_update in zip(own, wholes, strict=True)]
    back = torch.cat([got[:0], *(part[rank].flatten() for rank in range(ranks) for part in parts)])
    returned = torch.split(_exchanged(back, come, out, group), [locals_[index].numel() for index in in_order])
    updates = {index: piece.view(locals_[index].shape) for index, piece in zip(in_order, returned, strict=True)}
    return [
        DTensor.from_local(
            updates[index],
            matrix.device_mesh,
            matrix.placements,
            shape=matrix.shape,
            stride=(matrix.shape[1], 1),
            run_check=False,
        )
        for index, matrix in enumerate(matrices)
        if is_divided(matrix)
    ]


def _joined(got: Tensor, come: Sequence[int], shapes: Sequence[tuple[Sequence[int], int]]) -> list[Tensor]:
    """Whole matrices from the parts that each rank sent; `shapes` has the rows of every rank, and the columns."""
    pieces: list[list[Tensor]] = [[] for _ in shapes]
    for rank, received in enumerate(torch.split(got, list(come))):
        parts = torch.split(received, [rows[rank] * columns for rows, columns in shapes])
        for number, part in enumerate(parts):
            pieces[number].append(part)
    return [torch.cat(rank_pieces).view(-1, columns) for rank_pieces, (_, columns) in zip(pieces, shapes, strict=True)]


def _exchanged(sent: Tensor, out: Sequence[int], come: Sequence[int], group: ProcessGroup) -> Tensor:
    """The elements that the others send to this rank; `out` and `come` are their numbers, by rank."""
    got = torch.empty(sum(come), dtype=sent.dtype, device=sent.device)
    dist.all_to_all_single(got, sent, list(come), list(out), group=group)
    return got


def _rows(count: int, ranks: int) -> list[int]:
    """The number of rows of each rank, as DTensor divides them: equal but for the last ranks."""
    rows_per_rank = -(-count // ranks)
    return [max(0, min(rows_per_rank, count - rank * rows_per_rank)) for rank in range(ranks)]


def _by_everybody(matrix: Tensor) -> Tensor:
    """Every rank makes the whole matrix orthogonal, and keeps its part."""
    from torch.distributed.tensor import DTensor, Replicate

    assert is_divided(matrix)
    everywhere = [Replicate()] * matrix.device_mesh.ndim
    update = DTensor.from_local(orthogonal(matrix.full_tensor()), matrix.device_mesh, everywhere, run_check=False)
    return update.redistribute(placements=matrix.placements)
