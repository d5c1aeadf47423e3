"""What a rank holds after its start and after its first step: of a real rank, or of one that a plan stands for."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from slipway.trainer.node.world import World
from slipway.trainer.plan import stages
from slipway.trainer.plan.live_bytes import ALIGNMENT
from slipway.trainer.plan.question import Question
from slipway.trainer.plan.step import PlannedEngine
from slipway.trainer.start import divided
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.engine import Engine


def holdings_of(engine: Engine) -> dict[str, Any]:
    """The parts of all tensors that a checkpoint holds, by name, and the bytes of all that stays.

    Gradients count while they are there: it is called between a step's passes and its update, or with none.
    """
    parameters = dict(engine.model.named_parameters())
    saved = engine.model.state_dict()
    with unset_fake_temporarily():  # where a part begins is computed with tensors that have values
        parts = {name: divided.local_part(tensor)[1] for name, tensor in saved.items()}
    state = [
        tensor
        for moments in engine.optimizer.state.values()
        for tensor in moments.values()
        if isinstance(tensor, Tensor)
    ]
    return {
        "parts": {name: [list(part.offsets), list(part.sizes)] for name, part in parts.items()},
        "to_draw": sum(math.prod(part.sizes) for part in parts.values()),
        "weights": size([*parameters.values(), *engine.model.buffers()]),
        "gradients": size(parameter.grad for parameter in parameters.values() if parameter.grad is not None),
        "optimizer": size(state),
    }


def size(tensors: Iterable[Tensor]) -> int:
    """The bytes of the storages of these tensors, of this rank's parts, as an allocator gives them."""
    storages = [local(tensor).untyped_storage() for tensor in tensors]
    sizes = {storage._cdata: storage.nbytes() for storage in storages}
    return sum(-(-n_bytes // ALIGNMENT) * ALIGNMENT for n_bytes in sizes.values())


def local(tensor: Tensor) -> Tensor:
    """This rank's part."""
    part: Tensor = tensor.to_local() if is_divided(tensor) else tensor
    return part


@contextlib.contextmanager
def planned_engine(question: Question, rank: int) -> Iterator[PlannedEngine]:
    """The engine that a plan builds for this rank, at the true number of ranks, without memory and other processes."""
    mesh = question.mesh
    with stages._fake_ranks(rank, mesh.ranks), FakeTensorMode(allow_non_fake_inputs=True):
        world = World(rank, mesh.ranks, 0, torch.device("cpu"), mesh)
        yield PlannedEngine(question.config(), world, question.data, draws=False)
