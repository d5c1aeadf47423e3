"""The plan of a rank's part of every checkpoint: the chunks of tensors that it writes, and their places in its files.

Each rank writes its own part of tensors that are divided over all ranks. For tensors that several ranks have, rank 0
decides which rank writes what, with the planner of PyTorch's distributed checkpoint (DCP); it learns of no other
tensors. A plan is made once; it holds as long as the tensors keep their names, shapes and layout.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType
from torch.distributed.tensor import DTensor

from slipway.trainer.base import digest
from slipway.trainer.checkpoint.disk import tensor_table
from slipway.trainer.checkpoint.disk.dtypes import NAMES
from slipway.trainer.checkpoint.disk.manifest import Chunk, TensorEntry
from slipway.trainer.checkpoint.disk.tensor_table import Entries
from slipway.trainer.checkpoint.state import TrainingState
from slipway.trainer.node.world import World

PAGE = 4096
ALIGNMENT = 64
"""Bytes to which the first tensor in a file is aligned: enough for every element type."""
SMALL = 64
"""Bytes up to which a tensor that is equal on several ranks is written by the first of them."""

T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """One file of a rank, as a range of bytes in the buffer."""

    name: str
    begin: int
    size: int
    header: bytes
    """The first bytes of the file: the header of safetensors, or a whole file without tensors."""


@dataclass(frozen=True)
class PlannedPiece:
    """One chunk to copy, and its place in the buffer."""

    item: WriteItem
    begin: int


@dataclass(frozen=True)
class PartPlan:
    """The plan of one rank's part."""

    sections: tuple[Section, ...]
    pieces: tuple[PlannedPiece, ...]
    size: int
    """Bytes of the buffer."""


@dataclass(frozen=True)
class Offer:
    """A rank's message to rank 0: the tensors that other ranks could write as well."""

    shared: SavePlan
    small: Mapping[str, TensorEntry]
    """Tensors of at most `SMALL` bytes, by name."""
    divided: str
    """The hash of the names, types and shapes of the tensors that are divided over all ranks."""


@dataclass(frozen=True)
class Answer:
    """Rank 0's message to a rank: the part of its offer that it writes."""

    items: Sequence[WriteItem]
    small: frozenset[str]
    types: Mapping[str, TensorEntry] = field(default_factory=dict)
    """The types of all offered tensors; only for rank 0 itself."""


def signature(state: TrainingState) -> object:
    """The input of a plan: states with equal signatures have equal plans."""
    tensors = [
        (name, tensor.shape, tensor.dtype, getattr(tensor, "placements", None))
        for name, tensor in state.tensors.items()
    ]
    return tensors, state.frozen


def make_plan(state: TrainingState, world: World) -> PartPlan:
    """This rank's plan; all ranks call it at the same time. Raises ValueError if the ranks' tensors do not match."""
    planner = DefaultSavePlanner(flatten_state_dict=False)
    offer, own = offered(planner, state, world)
    answer = _from_rank_0(world, offer, lambda save_offers: decide(planner, save_offers))
    items = [item for item in own if item.index.fqn not in offer.small or item.index.fqn in answer.small]
    types: Entries = {}
    if world.is_rank_zero:
        types = {**_divided_types(state, world), **answer.types}
    return plan_part([*items, *answer.items], world.rank, state.frozen, types)


def offered(planner: DefaultSavePlanner, state: TrainingState, world: World) -> tuple[Offer, list[WriteItem]]:
    """This rank's offer to rank 0, and its own items: those that are divided over all ranks, or small."""
    planner.set_up_planner(dict(state.tensors), is_coordinator=world.is_rank_zero)
    local = planner.create_local_plan()
    items = [item for item in local.items if _has_elements(item)]
    divided = _divided_types(state, world)
    small = {item.index.fqn: _entry(item) for item in items if _is_small(item) and item.index.fqn not in divided}
    own = [item for item in items if item.index.fqn in divided or item.index.fqn in small]
    own_names = {item.index.fqn for item in own}
    shared = dataclasses.replace(local, items=[item for item in items if item.index.fqn not in own_names])
    return Offer(shared, small, digest.of_bytes(tensor_table.encode(divided))), own


def plan_part(items: Iterable[WriteItem], rank: int, frozen: frozenset[str], types: Entries) -> PartPlan:
    """A rank's plan: the files with its tensors, and its part of the tensor table, which is the same at every save.

    `types`: on rank 0, the types of all tensors.
    """
    sections, pieces = lay_out(items, rank, frozen)
    table: dict[str, Entries] = {tensor_table.part_name(rank): _entries(sections, pieces)}
    if types:
        table[tensor_table.TYPES] = types
    for name, entries in table.items():
        data = tensor_table.encode(entries)
        begin = _page_after(sections)
        sections = (*sections, Section(name, begin, len(data), data))
    return PartPlan(sections, pieces, sections[-1].begin + sections[-1].size)


def lay_out(
    items: Iterable[WriteItem], rank: int, frozen: frozenset[str]
) -> tuple[tuple[Section, ...], tuple[PlannedPiece, ...]]:
    """A rank's files, each from the start of a page, and its chunks; those with the largest elements come first."""
    sections: list[Section] = []
    pieces: list[PlannedPiece] = []
    grouped: dict[str, list[WriteItem]] = {}
    for item in items:
        grouped.setdefault(f"{_kind(item.index.fqn, frozen)}-{rank:05d}.safetensors", []).append(item)
    for name, group in sorted(grouped.items()):
        group.sort(key=lambda item: (-_data(item).properties.dtype.itemsize, item.index.fqn, _box(item)))
        header, offsets = _header(group)
        begin = _page_after(sections)
        pieces += [PlannedPiece(item, begin + len(header) + at) for item, at in zip(group, offsets, strict=False)]
        sections.append(Section(name, begin, len(header) + offsets[-1], header))
    return tuple(sections), tuple(pieces)


def decide(planner: DefaultSavePlanner, save_offers: Sequence[Offer]) -> list[Answer]:
    """Rank 0's answer to each rank. Raises ValueError if the ranks' tensors do not match.

    The first rank that has a small tensor writes it; the optimiser's counts of steps are such tensors. If the planner
    divided them among all ranks, as it does with large ones, each rank that resumes would have to read the tables of
    all others.
    """
    for rank, offer in enumerate(save_offers):
        if offer.divided != save_offers[0].divided:
            raise ValueError(f"rank {rank} does not hold parts of the same tensors as rank 0")
    plans, _ = planner.create_global_plan([offer.shared for offer in save_offers])
    types = {item.index.fqn: item for plan in plans for item in plan.items}
    small = dict[str, TensorEntry]()
    answers = []
    for plan, offer in zip(plans, save_offers, strict=True):
        answers.append(Answer(plan.items, frozenset(offer.small.keys() - small.keys())))
        small |= offer.small
    known = {**small, **{name: _entry(item) for name, item in types.items()}}
    return [dataclasses.replace(answers[0], types=known), *answers[1:]]


def _divided_types(state: TrainingState, world: World) -> dict[str, TensorEntry]:
    """The tensors of which every rank of the world has its own part, so that there is nothing to decide."""
    return {
        name: TensorEntry(NAMES[tensor.dtype], tuple(tensor.shape), ())
        for name, tensor in state.tensors.items()
        if isinstance(tensor, DTensor)
        and tensor.numel()
        and tensor.device_mesh.size() == world.size
        and not any(placement.is_replicate() or placement.is_partial() for placement in tensor.placements)
    }


def _is_small(item: WriteItem) -> bool:
    return item.type is WriteItemType.TENSOR and _bytes(item) <= SMALL


def _bytes(item: WriteItem) -> int:
    data = _data(item)
    return int(data.chunk.sizes.numel() * data.properties.dtype.itemsize)


def _entries(sections: Sequence[Section], pieces: Sequence[PlannedPiece]) -> dict[str, TensorEntry]:
    """The places of a rank's chunks, by tensor."""
    chunks: dict[str, list[Chunk]] = {}
    types: dict[str, TensorEntry] = {}
    for piece in pieces:
        section = next(section for section in reversed(sections) if section.begin <= piece.begin)
        data = _data(piece.item)
        name = piece.item.index.fqn
        chunk = Chunk(tuple(data.chunk.offsets), tuple(data.chunk.sizes), section.name, piece.begin - section.begin)
        chunks.setdefault(name, []).append(chunk)
        types[name] = _entry(piece.item)
    return {name: dataclasses.replace(entry, chunks=tuple(chunks[name])) for name, entry in types.items()}


def _entry(item: WriteItem) -> TensorEntry:
    """The type and shape of an item's tensor."""
    data = _data(item)
    return TensorEntry(NAMES[data.properties.dtype], tuple(data.size), ())


def _page_after(sections: Sequence[Section]) -> int:
    """The first byte of the next file: the start of a page."""
    if not sections:
        return 0
    end = sections[-1].begin + sections[-1].size
    return -(-end // PAGE) * PAGE


def _header(items: Sequence[WriteItem]) -> tuple[bytes, list[int]]:
    """The header of a safetensors file with `items` in order, and the first byte of each item, with the end."""
    described: dict[str, Any] = {}
    offsets = [0]
    for item in items:
        data = _data(item)
        end = offsets[-1] + _bytes(item)
        name = item.index.fqn.partition("/")[2]
        if data.chunk.sizes != data.size:
            name = f"{name}{_box(item)}"
        described[name] = {
            "dtype": NAMES[data.properties.dtype],
            "shape": list(data.chunk.sizes),
            "data_offsets": [offsets[-1], end],
        }
        offsets.append(end)
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, offsets


def _kind(name: str, frozen: frozenset[str]) -> str:
    if name in frozen:
        return "frozen"
    return "model" if name.startswith("model/") else "optimizer"


def _box(item: WriteItem) -> str:
    """A chunk's place in its tensor, for example [0:32,16:32]."""
    chunk = _data(item).chunk
    ranges = [f"{begin}:{begin + size}" for begin, size in zip(chunk.offsets, chunk.sizes, strict=True)]
    return f"[{','.join(ranges)}]"


def _has_elements(item: WriteItem) -> bool:
    """Whether the item has elements, if its tensor has any: a rank's part of a small tensor may be empty."""
    data = _data(item)
    return bool(data.chunk.sizes.numel() > 0 or data.size.numel() == 0)


def _data(item: WriteItem) -> Any:
    assert item.tensor_data is not None, f"{item.index.fqn} is not a tensor"
    return item.tensor_data


def _from_rank_0(world: World, value: Offer, decide: Callable[[list[Offer]], list[T]]) -> T:
    """Rank 0's decision for this rank, from the offers of all ranks. Raises rank 0's ValueError on every rank."""
    if world.size == 1:
        return decide([value])[0]
    gathered: list[Any] | None = [None] * world.size if world.is_rank_zero else None
    dist.gather_object(value, gathered, group=world.objects)
    answers: list[Any] | None = None
    if gathered is not None:
        try:
            answers = decide(gathered)
        except ValueError as error:
            answers = [error] * world.size
    own_answer: list[Any] = [None]
    dist.scatter_object_list(own_answer, answers, group=world.objects)
    if isinstance(own_answer[0], ValueError):
        raise own_answer[0]
    answer: T = own_answer[0]
    return answer
