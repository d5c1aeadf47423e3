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
    divisions = (mesh.stage(rank), mesh.pipeline), (shard, mesh.shards), (rank % mesh.tensor, mesh.tensor)
    return " ".join(f"{index}/{count}" for index, count in divisions)


def agreement(rank_offers: Sequence[HeldOffer | None], needed_parts: Sequence[str]) -> HandOverPlan | None:
    """The newest step of which somebody holds each wanted part; None where there is none. Both are by rank."""
    for step in sorted({offer.step for offer in rank_offers if offer}, reverse=True):
        holders: dict[str, list[int]] = {}
        for rank, offer in enumerate(rank_offers):
            if offer and offer.step == step:
                holders.setdefault(offer.part, []).append(rank)
        if not set(needed_parts) <= holders.keys():
            continue
        receivers = [rank for rank, needed in enumerate(needed_parts) if rank_offers[rank] != HeldOffer(step, needed)]
        # Those that hold a part take turns in giving it.
        givers = {
            rank: holders[needed_parts[rank]][n % len(holders[needed_parts[rank]])] for n, rank in enumerate(receivers)
        }
        return HandOverPlan(step, givers)
    return None


def hand_over(engine: Engine, world: World, held_state: HeldState | None) -> HandOver | None:
    """Continue on all ranks, which call it at once, from the state that some of them hold.

    `held_state` is what this rank holds. None, on all ranks, where the state is not whole among them, or where ranks
    that should hold the same bits do not; what the engine then has is worth nothing.
    """
    offer = HeldOffer(held_state.position.step, held_state.part) if held_state else None
    plan = agreement(world.all_gather(offer), [part(rank, world.mesh) for rank in range(world.size)])
    if plan is None:
        return None
    final_state, giver = held_state, plan.givers.get(world.rank)
    for receiver, sender in sorted(plan.givers.items()):
        if world.rank == sender:
            assert held_state is not None
            _send(held_state, receiver, world)
        elif world.rank == receiver:
            final_state = _receive(engine, sender, world)
    assert final_state is not None and (giver is None or final_state is not held_state)
    gathered = world.all_gather((final_state.position.step, part(world.rank, world.mesh), digest(final_state.state)))
    if len(set(gathered)) != len({part_name for _, part_name, _ in gathered}):
        return None
    engine.continue_from(final_state.state)
    return HandOver(final_state.position, plan.givers)


def digest(state: CarriedState) -> int:
    """A sum over the bits of all tensors, and over their places; equal states have the same one."""
    sums: dict[torch.device, list[Tensor]] = {}
    for index, tensor in enumerate(_tensors(state), 1):
        flat = tensor.contiguous().reshape(-1)
        total = index * flat.view(WHOLE_NUMBERS[flat.element_size()]).sum(dtype=torch.int64)
        sums.setdefault(tensor.device, []).append(total)
    return sum(int(torch.stack(group_sums).sum()) for group_sums in sums.values())


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


def _send(held_state: HeldState, receiver: int, world: World) -> None:
    moments = {
        name: {key: _kind(value) if isinstance(value, Tensor) else value for key, value in values.items()}
        for name, values in held_state.state.moments.items()
    }
    letter = _Letter(held_state.position, moments, held_state.state.extra)
    dist.send_object_list([letter], receiver, group=world.objects)
    for tensor in _tensors(held_state.state):
        if tensor.numel():
            dist.send(_bytes(tensor.contiguous()), receiver, group=_group(tensor, world))


def _receive(engine: Engine, giver: int, world: World) -> HeldState:
    letters: list[Any] = [None]
    dist.recv_object_list(letters, giver, group=world.objects)
    letter: _Letter = letters[0]
    own, weights = engine.whole_state(), dict(engine.model.named_parameters())
    assert own is not None
    moments = {
        name: {key: _allocated(value, weights[name]) for key, value in values.items()}
        for name, values in letter.moments.items()
    }
    state = dataclasses.replace(own, moments=moments, extra=letter.extra)
    for tensor in _tensors(state):
        if tensor.numel():
            buffer = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            dist.recv(_bytes(buffer), giver, group=_group(tensor, world))
            tensor.copy_(buffer)
    return HeldState(letter.position, part(world.rank, world.mesh), state)


def _kind(value: Tensor) -> _Kind:
    local_value = step_state.local(value)
    return _Kind(tuple(local_value.shape), local_value.dtype, is_divided(value), local_value.device.type == "cpu")


def _allocated(value: Any, weight: Tensor) -> Any:
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
