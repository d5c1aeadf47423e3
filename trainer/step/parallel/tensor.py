"""Tensor parallelism: the matrices of a block divided between ranks, in pairs that need one sum each.

The first matrices of a pair are divided by columns, and the last by rows, so the features between them (heads, hidden
features) belong to one rank (Megatron-LM, arXiv:1909.08053). Around the pairs each rank has a part of the
sequence (`divided_stream`); embedding, head and loss are divided over the vocabulary (`divided_vocabulary`).
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Shard, distribute_tensor

from slipway.trainer.models.model import Model
from slipway.trainer.start.divided import is_divided
from slipway.trainer.step.parallel.divided_stream import DividedStream
from slipway.trainer.step.parallel.divided_vocabulary import DividedVocabulary, local
from slipway.trainer.step.parallel.exchanges import Division

Product = Callable[[Tensor, Tensor], Tensor]
"""x [..., in] times weight [out, in] transposed: [..., out]."""
BY_COLUMNS = Shard(0)
BY_ROWS = Shard(1)
"""A matrix has the shape [out, in]: `BY_COLUMNS` divides outputs, `BY_ROWS` inputs."""


def divide(model: Model, devices: DeviceMesh, length: int, product: Product) -> None:
    """Divide the matrices that the model names, in place. Raises ValueError for a vocabulary with too few tokens.

    length: the positions of a sequence on this group; 0 if the model does not divide its stream.
    """
    division = Division(devices.get_group(), length)
    for name in (row_name for row_name in model.token_rows if _has(model, row_name)):
        _check_tokens(name, model.get_parameter(name), division.ranks)
        _divide_parameter(model, name, devices, BY_COLUMNS)
    for block in model.blocks:
        _divide_block(block, model, devices)
    stream = DividedStream(division, frozenset(_summed(model)))
    model.stream = stream
    for block in model.blocks:
        _connect(block, model, stream, product)
    rows = [model.get_parameter(name) for name in model.token_rows if _has(model, name)]
    if rows:
        model.vocabulary = DividedVocabulary(stream, *_range(rows[0].shape[0], division))


def complete_gradients(model: Model) -> None:
    """Sum the gradients of parameters that each rank uses for its positions or heads only: one all-reduce a step."""
    if not isinstance(model.stream, DividedStream):
        return
    named_gradients = [
        (name, parameter.grad) for name, parameter in model.named_parameters() if name in model.stream.summed
    ]
    shares = [local(grad) for _, grad in named_gradients if grad is not None]
    if not shares:
        return
    flat = torch.cat([share.flatten() for share in shares])
    dist.all_reduce(flat, group=model.stream.division.group)
    parts = torch.split(flat, [share.numel() for share in shares])
    torch._foreach_copy_(shares, [part.view_as(share) for part, share in zip(parts, shares, strict=True)])


def _divide_block(block: nn.Module, model: Model, devices: DeviceMesh) -> None:
    """Divide the matrices of a block, and the biases that belong to columns."""
    for name in model.columns:
        for parameter, _ in list(block.get_submodule(name).named_parameters()):
            _divide_parameter(block, f"{name}.{parameter}", devices, BY_COLUMNS)
    for name in model.rows:
        _divide_parameter(block, f"{name}.weight", devices, BY_ROWS)


def _connect(block: nn.Module, model: Model, stream: DividedStream, product: Product) -> None:
    """Make a block's pairs take all positions, multiply with this rank's part, and return this rank's positions."""
    for name in model.columns:
        matrix: Any = block.get_submodule(name)
        matrix.forward = functools.partial(_by_columns, matrix, product)
    for name in model.rows:
        matrix = block.get_submodule(name)
        matrix.forward = functools.partial(_by_rows, matrix, product, stream)
    for pair in {name.rpartition(".")[0] for name in model.columns}:
        block.get_submodule(pair).register_forward_pre_hook(functools.partial(_entered, stream))


def _entered(stream: DividedStream, _: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return stream.enter(arguments[0]), *arguments[1:]


def _by_columns(matrix: nn.Linear, product: Product, x: Tensor) -> Tensor:
    """This rank's features, of all positions."""
    out = product(x, local(matrix.weight))
    return out if matrix.bias is None else out + local(matrix.bias).to(out.dtype)


def _by_rows(matrix: nn.Linear, product: Product, stream: DividedStream, x: Tensor) -> Tensor:
    """All features, of this rank's positions; the undivided bias is added to the sum."""
    out = stream.leave(product(x, local(matrix.weight)))
    return out if matrix.bias is None else out + matrix.bias.to(out.dtype)


def _divide_parameter(module: nn.Module, name: str, devices: DeviceMesh, placement: Placement) -> None:
    """Replace a parameter of `module` or its submodules by this rank's part; every rank has the same whole one."""
    owner, _, key = name.rpartition(".")
    parent = module.get_submodule(owner)
    parameter = parent.get_parameter(key)
    part: DTensor = distribute_tensor(parameter.detach(), devices, [placement], src_data_rank=None)
    parent.register_parameter(key, nn.Parameter(part, requires_grad=parameter.requires_grad))


def _summed(model: Model) -> set[str]:
    """The names of the parameters of whose gradient each rank computes a share.

    A rank uses `model.shared` for its own heads. It uses undivided parameters, in blocks and in `model.on_stream`, for
    its own positions.
    """
    full_names = {name for name, parameter in model.named_parameters() if not is_divided(parameter)}
    inside = [f"blocks.{key}." for key, _ in model.blocks.named_children()]
    prefixes = tuple(f"{prefix}{name}." for prefix in inside for name in model.shared)
    if model.stream_length:
        prefixes += (*inside, *(f"{name}." for name in model.on_stream))
    return {name for name in full_names if name.startswith(prefixes)}


def _check_tokens(name: str, rows: Tensor, ranks: int) -> None:
    """Raises ValueError if a rank would have no token."""
    count = rows.shape[0]
    if -(-count // ranks) * (ranks - 1) >= count:
        raise ValueError(
            f"field layout.tensor: found {ranks}, expected fewer: {name} has {count} rows, one for each token"
        )


def _range(count: int, division: Division) -> tuple[int, int]:
    """The first token of this rank, and the number of its tokens, as `Shard` divides `count` of them."""
    most = -(-count // division.ranks)
    begin = most * division.group.rank()
    return begin, min(most, count - begin)


def _has(model: Model, name: str) -> bool:
    """Whether this rank's stage of a pipeline has the parameter."""
    return name in dict(model.named_parameters())
