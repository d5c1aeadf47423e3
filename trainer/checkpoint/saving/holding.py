"""Holding: a state is kept in the memory of its node, in a buffer that outlives the rank, and is written nowhere."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import torch

from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.memory.seal import HeldPart
from slipway.trainer.checkpoint.saving import random_state
from slipway.trainer.checkpoint.saving.buffer import Buffer
from slipway.trainer.checkpoint.state import TrainingState
from slipway.trainer.node.world import World
from slipway.trainer.record.fence import Token

if TYPE_CHECKING:
    from slipway.trainer.checkpoint.saving.planning import PartPlan


def part(token: Token, world: World, state: TrainingState, progress: TrainingProgress) -> HeldPart:
    """What a rank's buffer holds once `state` is copied into it, without the files."""
    place = token.incarnation, token.generation, progress.step, world.rank, world.size
    led = asdict(progress) if world.leads else {}
    return HeldPart(*place, {}, random_state.take(), dict(state.values), led)


def hold(
    buffers: Sequence[Buffer],
    free: Sequence[Buffer],
    plan: "PartPlan",
    state: TrainingState,
    device: torch.device,
    held: HeldPart,
) -> None:
    """Copy `state` into one of the free buffers and have it sealed; nothing where that would cost the newest state."""
    newest = max(buffers, key=lambda each: each.age)
    if buffer := next((each for each in free if each is not newest), None):
        newest.wait()  # else steps that are shorter than the hashing would leave no state sealed
        buffer.prepare(plan, device)
        buffer.copy(state, device)
        buffer.seal(held)
