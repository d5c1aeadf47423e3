"""Tensor parallelism: the matrices of a block divided between ranks, in pairs that need one sum a pair.

The first matrices of a pair are divided by columns, and the last by rows, so that what lies between them (heads,
hidden features) belongs to one rank (Megatron-LM, arXiv:1909.08053). Everything else is whole on every rank, with the
same gradients.
"""

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from trainer.models.model import Model


def divide(model: Model, devices: DeviceMesh) -> None:
    """Divide the matrices that the model names, in place."""
    columns: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in model.columns}
    rows = {name: RowwiseParallel() for name in model.rows}
    for block in model.blocks:
        parallelize_module(block, devices, {**columns, **rows})
        for pair in {name.rpartition(".")[0] for name in model.columns}:
            block.get_submodule(pair).register_forward_pre_hook(_whole_on(devices))
        for name in model.shared:
            module: Any = block.get_submodule(name)
            module.gain = functools.partial(_summed, module.gain, devices)


def _whole_on(devices: DeviceMesh) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    """A hook that marks a module's first argument as whole on every rank: its gradients are then summed only once."""

    def enter(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return DTensor.from_local(arguments[0], devices, (Replicate(),), run_check=False), *arguments[1:]

    return enter


def _summed(gain: Callable[[], Tensor], devices: DeviceMesh) -> Tensor:
    """A whole weight that this rank uses for its part of the heads: its gradient is the sum of all ranks' gradients."""
    whole = DTensor.from_local(gain(), devices, (Replicate(),), run_check=False)
    return whole.to_local(grad_placements=(Partial(),))
