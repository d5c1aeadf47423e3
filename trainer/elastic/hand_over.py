"""The hand-over: the ranks of a new generation agree on a step whose state is held, and who gives it to whom.

Ranks that stayed hold the state that they had when their generation ended. Some may be a step ahead of others, as one
had finished its update when another's exchange broke. All go on from the newest step of which every part is held: a
rank that holds another step, or nothing, as it is new, gets its part from a rank that holds the same one (a replica).
Where a part is held by nobody, as each rank of a fully sharded layout is the only one that has its own, all ranks
restore a checkpoint. Random generators are not handed over: each step seeds them (`slipway.trainer.step.randomness`).
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.config.layout import Mesh
from slipway.trainer.node.world import World
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step import step_state
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.step_state import CarriedState

WHOLE_NUMBERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By the bytes of an element."""


@dataclass(frozen=True)
class HeldPosition:
    """Where a training is between two steps, beside what the engine holds."""

    progress: TrainingProgress
    figures: Mapping[str, float]
    """Of the last step: what all ranks know of it."""
    reported: bool
    """Whether rank 0 has put them on record."""

    @property
    def step(self) -> int:
        return self.progress.step


@dataclass(frozen=True)
class HeldState:
    """What a rank holds that has left its generation."""

    position: HeldPosition
    part: str
    """See `part`."""
    state: CarriedState


@dataclass(frozen=True)
class HeldOffer:
    """What a rank says of the state that it holds."""

    step: int
    part: str


@dataclass(frozen=True)
class HandOverPlan:
    """The step from which all go on, and by rank, the rank that it gets its part of the state from."""

    step: int
    givers: Mapping[int, int]


@dataclass(frozen=True)
class HandOver:
    """How the state was handed over."""

    position: HeldPosition
    givers: Mapping[int, int]
    own: bool = True
    """It is of this training, as no checkpoint of another one need be."""
    committed: bool = False
    """It may be on record all the same."""

    @property
    def progress(self) -> TrainingProgress:
        return self.position.progress


@dataclass(frozen=True)
class _Kind:
    """A tensor of the optimiser, as the rank that gets it must make it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    divided: bool
    on_host: bool


@dataclass(frozen=True)
class _Letter:
    """What is sent before the tensors."""

    position: HeldPosition
    moments: dict[str, dict[str, Any]]
    """A `_Kind` for each tensor; other values as they are."""
    extra: dict[str, Any]


def part(rank: int, mesh: Mesh) -> str:
    """Which part of the whole state a rank holds: ranks with the same one hold the same bits."""
    shard = mesh.gradient_rank(rank) % mesh.shards
    places = (mesh.stage(rank), mesh.pipeline), (shard, mesh.shards), (rank % mesh.tensor, mesh.tensor)
    return " ".join(f"{place}/{count}" for place, count in places)


def agreement(offers: Sequence[HeldOffer | None], wanted: Sequence[str]) -> HandOverPlan | None:
    """The newest step of which somebody holds each wanted part; None where there is none. Both are by rank."""
    for step in sorted({offer.step for offer in offers if offer}, reverse=True):
        holders: dict[str, list[int]] = {}
        for rank, offer in enumerate(offers):
            if offer and offer.step == step:
                holders.setdefault(offer.part, []).append(rank)
        if not set(wanted) <= holders.keys():
            continue
        lacking = [rank for rank, needed in enumerate(wanted) if offers[rank] != HeldOffer(step, needed)]
        # Those that hold a part take turns in giving it.
        givers = {rank: holders[wanted[rank]][n % len(holders[wanted[rank]])] for n, rank in enumerate(lacking)}
        return HandOverPlan(step, givers)
    return None


def hand_over(engine: Engine, world: World, held: HeldState | None) -> HandOver | None:
    """Continue on all ranks, which call it at once, from the state that some of them hold.

    `held` is what this rank holds. None, on all ranks, where the state is not whole among them, or where ranks that
    should hold the same bits do not; what the engine then has is worth nothing.
    """
    offer = HeldOffer(held.position.step, held.part) if held else None
    found = agreement(world.gather(offer), [part(rank, world.mesh) for rank in range(world.size)])
    if found is None:
        return None
    mine, giver = held, found.givers.get(world.rank)
    for receiver, sender in sorted(found.givers.items()):
        if world.rank == sender:
            assert held is not None
            _send(held, receiver, world)
        elif world.rank == receiver:
            mine = _receive(engine, sender, world)
    assert mine is not None and (giver is None or mine is not held)
    gathered = world.gather((mine.position.step, part(world.rank, world.mesh), digest(mine.state)))
    if len(set(gathered)) != len({place for _, place, _ in gathered}):
        return None
    engine.continue_from(mine.state)
    return HandOver(mine.position, found.givers)


def digest(state: CarriedState) -> int:
    """A sum over the bits of all tensors, and over their places; equal states have the same one."""
    sums: dict[torch.device, list[Tensor]] = {}
    for place, tensor in enumerate(_tensors(state), 1):
        flat = tensor.contiguous().reshape(-1)
        total = place * flat.view(WHOLE_NUMBERS[flat.element_size()]).sum(dtype=torch.int64)
        sums.setdefault(tensor.device, []).append(total)
    return sum(int(torch.stack(each).sum()) for each in sums.values())


def _tensors(state: CarriedState) -> Iterator[Tensor]:
    """This rank's part of each tensor, in the order in which they are sent."""
    for name in sorted(state.weights):
        yield state.weights[name]
    for name in sorted(state.moments):
        for key in sorted(state.moments[name]):
            value = state.moments[name][key]
            if isinstance(value, Tensor):
                yield step_state.local(value)
    for name in sorted(state.statistics):
        yield state.statistics[name]


def _send(held: HeldState, receiver: int, world: World) -> None:
    moments = {
        name: {key: _kind(value) if isinstance(value, Tensor) else value for key, value in kept.items()}
        for name, kept in held.state.moments.items()
    }
    letter = _Letter(held.position, moments, held.state.extra)
    dist.send_object_list([letter], receiver, group=world.objects)
    for tensor in _tensors(held.state):
        if tensor.numel():
            dist.send(_bytes(tensor.contiguous()), receiver, group=_group(tensor, world))


def _receive(engine: Engine, giver: int, world: World) -> HeldState:
    letters: list[Any] = [None]
    dist.recv_object_list(letters, giver, group=world.objects)
    letter: _Letter = letters[0]
    own, weights = engine.whole_state(), dict(engine.model.named_parameters())
    assert own is not None
    moments = {
        name: {key: _made(value, weights[name]) for key, value in kept.items()} for name, kept in letter.moments.items()
    }
    state = dataclasses.replace(own, moments=moments, extra=letter.extra)
    for tensor in _tensors(state):
        if tensor.numel():
            found = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            dist.recv(_bytes(found), giver, group=_group(tensor, world))
            tensor.copy_(found)
    return HeldState(letter.position, part(world.rank, world.mesh), state)


def _kind(value: Tensor) -> _Kind:
    mine = step_state.local(value)
    return _Kind(tuple(mine.shape), mine.dtype, is_divided(value), mine.device.type == "cpu")


def _made(value: Any, weight: Tensor) -> Any:
    """What the optimiser has for `weight`: an empty tensor laid out as it where that is divided, or a plain value."""
    if not isinstance(value, _Kind):
        return value
    device = torch.device("cpu") if value.on_host else step_state.local(weight).device
    empty = torch.empty(value.shape, dtype=value.dtype, device=device)
    return step_state.divided_as(weight, empty) if value.divided else empty


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _group(tensor: Tensor, world: World) -> dist.ProcessGroup | None:
    """The group that `tensor` travels by: the optimiser of a GPU may count its steps on the host."""
    return world.objects if tensor.device.type == "cpu" else None
