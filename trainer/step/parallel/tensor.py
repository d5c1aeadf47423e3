"""Tensor parallelism: the matrices of a block divided between ranks, in pairs that need one sum a pair.

The first matrices of a pair are divided by columns, and the last by rows, so that what lies between them (heads,
hidden features) belongs to one rank (Megatron-LM, arXiv:1909.08053). Everything else is whole on every rank, with the
same gradients.
"""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
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


def _whole_on(devices: DeviceMesh) -> Callable[[nn.Module, tuple[Any, ...]], tuple[Any, ...]]:
    """A hook that marks a module's first argument as whole on every rank: its gradients are then summed only once."""

    def enter(_: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return DTensor.from_local(arguments[0], devices, (Replicate(),), run_check=False), *arguments[1:]

    return enter
