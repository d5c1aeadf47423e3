"""The plan of a rank's part of every checkpoint: which chunks of which tensors it writes, and where in its files.

DCP's planner decides who writes what: replicated tensors are shared out over the ranks, sharded ones are written
where they are. Made once, by rank 0 for all, it holds as long as the tensors keep their names, shapes and layout.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from trainer.checkpoint.dtypes import NAMES
from trainer.checkpoint.manifest import Chunk, Entry
from trainer.checkpoint.state import State
from trainer.world import World

PAGE = 4096
ALIGNMENT = 64
"""Of the first tensor in a file, in bytes: enough for every element type."""

T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """One file of a rank, as it lies in the buffer."""

    name: str
    begin: int
    size: int
    header: bytes
    """Where the tensors are, in safetensors' form; the file begins with it."""


@dataclass(frozen=True)
class Piece:
    """One chunk to copy, and where it goes in the buffer."""

    item: WriteItem
    begin: int


@dataclass(frozen=True)
class Plan:
    sections: tuple[Section, ...]
    pieces: tuple[Piece, ...]
    size: int
    """Of the buffer, in bytes."""
    tensors: dict[str, Entry]
    """Of all ranks; on rank 0 alone."""


def signature(state: State) -> object:
    """What a plan depends on; equal signatures have equal plans."""
    tensors = [(name, t.shape, t.dtype, getattr(t, "placements", None)) for name, t in state.tensors.items()]
    return tensors, state.frozen


def make(state: State, world: World) -> Plan:
    """This rank's plan; every rank calls at once. Raises ValueError when the ranks' tensors don't add up."""
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(dict(state.tensors), is_coordinator=world.leads)
    local = planner.create_local_plan()
    local = dataclasses.replace(local, items=[i for i in local.items if _holds(i)], planner_data=state.frozen)
    items, tensors = _decided(world, local, lambda plans: _shared_out(planner, plans))
    sections, pieces = lay_out(items, world.rank, state.frozen)
    end = sections[-1].begin + sections[-1].size if sections else 0
    return Plan(sections, pieces, end, tensors)


def lay_out(
    items: Iterable[WriteItem], rank: int, frozen: frozenset[str]
) -> tuple[tuple[Section, ...], tuple[Piece, ...]]:
    """A rank's files, one behind the other from a page's start, and its chunks in them, the largest elements first."""
    sections: list[Section] = []
    pieces: list[Piece] = []
    begin = 0
    grouped: dict[str, list[WriteItem]] = {}
    for item in items:
        grouped.setdefault(f"{_kind(item.index.fqn, frozen)}-{rank:05d}.safetensors", []).append(item)
    for name, group in sorted(grouped.items()):
        group.sort(key=lambda item: (-_data(item).properties.dtype.itemsize, item.index.fqn, _box(item)))
        header, offsets = _header(group)
        pieces += [Piece(item, begin + len(header) + at) for item, at in zip(group, offsets, strict=False)]
        sections.append(Section(name, begin, len(header) + offsets[-1], header))
        begin += -(-sections[-1].size // PAGE) * PAGE
    return tuple(sections), tuple(pieces)


def _shared_out(
    planner: DefaultSavePlanner, plans: Sequence[SavePlan]
) -> list[tuple[list[WriteItem], dict[str, Entry]]]:
    """Each rank's items; for rank 0 also where each tensor lies."""
    decided, metadata = planner.create_global_plan(list(plans))
    chunks: dict[str, list[Chunk]] = {name: [] for name in metadata.state_dict_metadata}
    described: dict[str, Entry] = {}
    for rank, plan in enumerate(decided):
        sections, pieces = lay_out(plan.items, rank, plan.planner_data)
        for piece in pieces:
            section = next(s for s in reversed(sections) if s.begin <= piece.begin)
            data, name = _data(piece.item), piece.item.index.fqn
            at = piece.begin - section.begin
            chunks[name].append(Chunk(tuple(data.chunk.offsets), tuple(data.chunk.sizes), section.name, at))
            described[name] = Entry(NAMES[data.properties.dtype], tuple(data.size), ())
    tensors = {name: dataclasses.replace(entry, chunks=tuple(chunks[name])) for name, entry in described.items()}
    return [(plan.items, tensors if rank == 0 else {}) for rank, plan in enumerate(decided)]


def _header(items: Sequence[WriteItem]) -> tuple[bytes, list[int]]:
    """The head of a safetensors file that holds `items` one behind the other, and where each begins, and the end."""
    described: dict[str, Any] = {}
    offsets = [0]
    for item in items:
        data = _data(item)
        end = offsets[-1] + data.chunk.sizes.numel() * data.properties.dtype.itemsize
        name = item.index.fqn.partition("/")[2]
        described[name if data.chunk.sizes == data.size else f"{name}{_box(item)}"] = {
            "dtype": NAMES[data.properties.dtype],
            "shape": list(data.chunk.sizes),
            "data_offsets": [offsets[-1], end],
        }
        offsets.append(end)
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, offsets


def _kind(name: str, frozen: frozenset[str]) -> str:
    group = name.partition("/")[0]
    return "frozen" if name in frozen else "model" if group == "model" else "optimiser"


def _box(item: WriteItem) -> str:
    """A chunk's place in its tensor: [0:32,16:32]."""
    chunk = _data(item).chunk
    return f"[{','.join(f'{o}:{o + s}' for o, s in zip(chunk.offsets, chunk.sizes, strict=True))}]"


def _holds(item: WriteItem) -> bool:
    """Whether the item has elements, as far as its tensor has any: a rank's share of a small tensor may be empty."""
    data = _data(item)
    return bool(data.chunk.sizes.numel() > 0 or data.size.numel() == 0)


def _data(item: WriteItem) -> Any:
    assert item.tensor_data is not None, f"{item.index.fqn} is not a tensor"
    return item.tensor_data


def _decided(world: World, value: SavePlan, decide: Callable[[list[SavePlan]], list[T]]) -> T:
    """What rank 0 decides for this rank from the values of all. Raises ValueError on all ranks when it cannot."""
    if world.size == 1:
        return decide([value])[0]
    gathered: list[Any] | None = [None] * world.size if world.leads else None
    dist.gather_object(value, gathered)
    answers: list[Any] | None = None
    if gathered is not None:
        try:
            answers = decide(gathered)
        except ValueError as error:
            answers = [error] * world.size
    mine: list[Any] = [None]
    dist.scatter_object_list(mine, answers)
    if isinstance(mine[0], ValueError):
        raise mine[0]
    answer: T = mine[0]
    return answer
