"""The hand-over: the ranks of a new generation agree on a step whose state they hold, and share it.

Ranks that stayed hold the state from the end of their generation. Some may be a step ahead of others: one had finished
its update when the collective of another failed. All continue from the newest step of which every part is held. A new
rank, or one that holds another step, gets its part from a rank that holds the same part (a replica). If no rank holds
some part, as in a fully sharded layout, where each rank alone has its own, all ranks restore a checkpoint. The state of
random generators is not handed over: each step seeds them (`slipway.trainer.step.randomness`).
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
    """The position of a training between two steps: its state beside the engine's."""

    progress: TrainingProgress
    figures: Mapping[str, float]
    """The figures of the last step that all ranks know."""
    reported: bool
    """Whether rank 0 has recorded them."""

    @property
    def step(self) -> int:
        return self.progress.step


@dataclass(frozen=True)
class HeldState:
    """The state of a rank that has left its generation."""

    position: HeldPosition
    part: str
    """See `part`."""
    state: CarriedState


@dataclass(frozen=True)
class HeldOffer:
    """A rank's message about the state that it holds."""

    step: int
    part: str


@dataclass(frozen=True)
class HandOverPlan:
    """The step from which all continue, and for each rank that needs its part of the state, the rank that gives it."""

    step: int
    givers: Mapping[int, int]


@dataclass(frozen=True)
class HandOver:
    """A completed hand-over; it has the attributes of `slipway.trainer.elastic.resumption.RestoredProgress`."""

    position: HeldPosition
    givers: Mapping[int, int]
    own: bool = True
    """The state is always this training's own, never its parent's."""
    committed: bool = False
    """Unknown: a checkpoint of the step may be on record."""

    @property
    def progress(self) -> TrainingProgress:
        return self.position.progress


@dataclass(frozen=True)
class _Kind:
    """A tensor of the optimiser's state, as the receiver allocates it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    divided: bool
    on_host: bool


@dataclass(frozen=True)
class _Letter:
    """The message before the tensors."""

    position: HeldPosition
    moments: dict[str, dict[str, Any]]
    """The optimiser's state, with a `_Kind` in place of each tensor."""
    extra: dict[str, Any]


def part(rank: int, mesh: Mesh) -> str:
    """A name for the part of the whole state that a rank holds: ranks with the same part hold the same bits."""
    shard = mesh.gradient_rank(rank) % mesh.shards
    tensor = rank % mesh.tensor
    return f"{mesh.stage(rank)}/{mesh.pipeline} {shard}/{mesh.shards} {tensor}/{mesh.tensor}"


def agreement(rank_offers: Sequence[HeldOffer | None], needed_parts: Sequence[str]) -> HandOverPlan | None:
    """The newest step of which the ranks hold every needed part; None if there is none. Both lists are by rank."""
    for step in sorted({offer.step for offer in rank_offers if offer}, reverse=True):
        holders: dict[str, list[int]] = {}
        for rank, offer in enumerate(rank_offers):
            if offer and offer.step == step:
                holders.setdefault(offer.part, []).append(rank)
        if not set(needed_parts) <= holders.keys():
            continue
        receivers = [rank for rank, needed in enumerate(needed_parts) if rank_offers[rank] != HeldOffer(step, needed)]
        # The holders of a part take turns.
        givers = {}
        for number, rank in enumerate(receivers):
            part_holders = holders[needed_parts[rank]]
            givers[rank] = part_holders[number % len(part_holders)]
        return HandOverPlan(step, givers)
    return None


def hand_over(engine: Engine, world: World, held_state: HeldState | None) -> HandOver | None:
    """Continue from the state that some ranks hold. All ranks call it at the same time.

    `held_state`: the state of this rank, if it has one. Returns None, on all ranks, if some part is missing, or if
    ranks that should hold the same bits do not; the state of the engine is then undefined.
    """
    offer = HeldOffer(held_state.position.step, held_state.part) if held_state else None
    plan = agreement(world.all_gather(offer), [part(rank, world.mesh) for rank in range(world.size)])
    if plan is None:
        return None
    final_state = held_state
    giver = plan.givers.get(world.rank)
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
    """A sum over the bits of all tensors, weighted by their order; equal states have equal sums."""
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
    own = engine.whole_state()
    weights = dict(engine.model.named_parameters())
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
    """A value of the optimiser's state for `weight`: an empty tensor in place of a `_Kind`, or `value` itself."""
    if not isinstance(value, _Kind):
        return value
    device = torch.device("cpu") if value.on_host else step_state.local(weight).device
    empty = torch.empty(value.shape, dtype=value.dtype, device=device)
    if value.divided:
        return step_state.divided_as(weight, empty)
    return empty


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)


def _group(tensor: Tensor, world: World) -> dist.ProcessGroup | None:
    """The process group for `tensor`. Even on a GPU, an optimiser may count its steps on the host."""
    return world.objects if tensor.device.type == "cpu" else None
