"""Drawing: the initial values of this rank's part of a model; no rank draws or holds more.

A number depends on the seed, the parameter's name and shape, and the element's position. Numbers are drawn on the host,
so they are the same in every layout and on every device. A parameter is cut into tiles of at most 65,536 elements, and
each tile has its own stream of Philox, a generator that is a function of a key and a counter (Salmon et al., SC 2011).
A rank draws the tiles that its part touches.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from slipway.trainer.models.initial_values import Computed, Constant, InitialValues, Normal, Uniform
from slipway.trainer.models.model import Model
from slipway.trainer.start import divided
from slipway.trainer.start.divided import is_divided

ELEMENTS = 65_536
"""The most elements of a tile."""
COLUMNS = 1_024
"""The most columns of a tile: few enough for division by rows and by columns."""
Values = npt.NDArray[np.float32]


def says_how_it_begins(network: type[Model]) -> bool:
    """Whether a model class has a rule for each of its parameters, so that its models can be drawn in parts."""
    return network.initial is not Model.initial


def allocate(called: nn.Module, model: Model, device: torch.device) -> None:
    """Give the parameters and buffers of `called`, which contains `model`, memory on `device`, without values.

    Only buffers that are not saved get their values, because no checkpoint has them. Parameters that two modules share
    stay shared.
    """
    shared = _shared_parameters(called)
    called._apply(lambda tensor: _empty(tensor, device))  # type: ignore[no-untyped-call]
    for (owner, key), others in shared:
        for other, other_key in others:
            other._parameters[other_key] = owner._parameters[key]
    saved = model.state_dict().keys()
    for name, buffer in model.named_buffers():
        if name not in saved:
            _fill(name, buffer, _rule(model, name, buffer), 0)


def draw(model: Model, seed: int) -> int:
    """Set this rank's part of parameters and saved buffers to the initial values; returns the number of elements."""
    elements = 0
    saved = model.state_dict().keys()
    for name, tensor in itertools.chain(model.named_parameters(), model.named_buffers()):
        if name in saved:
            elements += _fill(name, tensor, _rule(model, name, tensor), seed)
    return elements


def values(name: str, shape: tuple[int, ...], part: divided.Part, rule: Normal | Uniform, seed: int) -> Values:
    """The initial values of a part of the parameter `name`, whose whole shape is `shape`: an array of the part's shape.

    Its memory is that of the part and one tile.
    """
    array = np.empty(part.sizes, np.float32)
    _draw_into(array, name, shape, part, rule, seed)
    return array


def _empty(tensor: Tensor, device: torch.device) -> Tensor:
    """Memory for this rank's part of `tensor`. For a plain tensor, `empty_like` would import PyTorch's compiler."""
    if is_divided(tensor):
        return torch.empty_like(tensor, device=device)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def _rule(model: Model, name: str, tensor: Tensor) -> InitialValues:
    rule = model.initial(name, tensor)
    assert rule is not None, f"{type(model).__name__}.initial has no rule for {name}"
    return rule


@torch.no_grad()
def _fill(name: str, tensor: Tensor, rule: InitialValues, seed: int) -> int:
    """Fill this rank's part of `tensor`; returns the number of its elements."""
    local, part = divided.local_part(tensor)
    match rule:
        case Constant(value):
            local.fill_(value)
        case Computed(function):
            local.copy_(divided.cut(function(), part))
        case Normal() | Uniform():
            if not local.numel():
                return 0
            if local.device.type == "cpu" and local.dtype == torch.float32 and local.is_contiguous():
                _draw_into(local.detach().numpy(), name, tuple(tensor.shape), part, rule, seed)
            else:
                local.copy_(torch.from_numpy(values(name, tuple(tensor.shape), part, rule, seed)))
    return local.numel()


def _draw_into(
    target: Values, name: str, shape: tuple[int, ...], part: divided.Part, rule: Normal | Uniform, seed: int
) -> None:
    """Draw a part into `target`, which has its sizes, as the rows and columns of a matrix."""
    rows, columns = _as_matrix(shape)
    begin, end = _ranges(shape, part)
    matrix = target.reshape(end[0] - begin[0], end[1] - begin[1])
    tile_columns = min(columns, COLUMNS if rows > 1 else ELEMENTS)
    tile_rows = max(1, min(rows, ELEMENTS // tile_columns))
    key = _key(name, seed)
    across = -(-columns // tile_columns)
    buffer = np.empty(tile_rows * tile_columns, np.float32)
    for row, column in _corners(begin, end, (tile_rows, tile_columns)):
        sizes = min(tile_rows, rows - row), min(tile_columns, columns - column)
        number = row // tile_rows * across + column // tile_columns
        tile = _tile(buffer[: math.prod(sizes)], key, number, rule).reshape(sizes)
        tile_rows_needed = _overlap(row, sizes[0], begin[0], end[0])
        tile_columns_needed = _overlap(column, sizes[1], begin[1], end[1])
        target_rows = _shifted(tile_rows_needed, row - begin[0])
        target_columns = _shifted(tile_columns_needed, column - begin[1])
        matrix[target_rows, target_columns] = tile[tile_rows_needed, tile_columns_needed]


def _overlap(corner: int, size: int, begin: int, end: int) -> slice:
    """The part of a tile from `corner` on that lies in begin .. end - 1, counted from the corner."""
    return slice(max(begin, corner) - corner, min(end, corner + size) - corner)


def _shifted(part: slice, by: int) -> slice:
    return slice(part.start + by, part.stop + by)


def _tile(out: Values, key: npt.NDArray[np.uint64], number: int, rule: Normal | Uniform) -> Values:
    """The values of one tile, in `out`."""
    generator = np.random.Generator(np.random.Philox(key=key, counter=np.array([0, 0, number, 0], np.uint64)))
    if isinstance(rule, Normal):
        generator.standard_normal(dtype=np.float32, out=out)
        out *= np.float32(rule.deviation)
    else:
        generator.random(dtype=np.float32, out=out)
        out *= np.float32(2 * rule.bound)
        out -= np.float32(rule.bound)
    return out


def _corners(begin: tuple[int, int], end: tuple[int, int], tile: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The first row and column of each tile that the ranges touch."""
    rows = range(begin[0] // tile[0] * tile[0], end[0], tile[0])
    columns = range(begin[1] // tile[1] * tile[1], end[1], tile[1])
    yield from itertools.product(rows, columns)


def _as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows and columns: the first dimension, and the product of the others; a vector is one row."""
    if len(shape) < 2:
        return 1, math.prod(shape)
    return shape[0], math.prod(shape[1:])


def _ranges(shape: tuple[int, ...], part: divided.Part) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first row and column of a part, and the row and column after its last ones."""
    if len(shape) < 2:
        begin = part.offsets[0] if shape else 0
        return (0, begin), (1, begin + math.prod(part.sizes))
    assert part.sizes[2:] == shape[2:], "a layout divides the first two dimensions only"
    wide = math.prod(shape[2:])
    first = part.offsets[0], part.offsets[1] * wide
    return first, (first[0] + part.sizes[0], first[1] + part.sizes[1] * wide)


def _key(name: str, seed: int) -> npt.NDArray[np.uint64]:
    """Philox's key for a parameter: 128 bits of the SHA-256 of seed and name."""
    return np.frombuffer(hashlib.sha256(f"{seed}\0{name}".encode()).digest()[:16], "<u8").astype(np.uint64)


ParameterOwner = tuple[nn.Module, str]


def _shared_parameters(module: nn.Module) -> list[tuple[ParameterOwner, list[ParameterOwner]]]:
    """The parameters that several modules hold: the first holder of each, and the others."""
    holders: dict[int, list[ParameterOwner]] = {}
    for submodule in module.modules():
        for key, parameter in submodule._parameters.items():
            if parameter is not None:
                holders.setdefault(id(parameter), []).append((submodule, key))
    return [(first, others) for first, *others in holders.values() if others]
