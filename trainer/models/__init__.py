"""Models: a folder for each kind, with its `Shape` in `__init__` and its `Network` in `network`.

Your own model is a module with the same two classes, which `model.kind` names
(`slipway.trainer.config.shapes.type_of`). Only the networks and their common modules import torch: `model`,
`initial_values`, `outline`, `classifier` and `batch_norm`.
"""

from typing import TYPE_CHECKING

from slipway.trainer.config.shapes import Data, Shape, network_of

if TYPE_CHECKING:
    from slipway.trainer.models.model import Model


def build(shape: Shape, data: Data) -> "Model":
    """The model of this shape, as its constructor makes it on torch's default device. Raises Invalid.

    `Model.initial` has the rules of its initial values; `slipway.trainer.start.drawing` draws them.
    """
    shape.check(data)
    model: Model = network_of(shape.kind)(shape, data)
    return model
