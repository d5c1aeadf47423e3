"""Models in one process with the weights that a training begins with."""

import torch

from slipway.trainer import models
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.models.model import Model
from slipway.trainer.models.outline import without_memory
from slipway.trainer.start import drawing


def drawn(shape: Shape, data: Data, seed: int = 0) -> Model:
    with without_memory():
        model = models.build(shape, data)
    drawing.allocate(model, model, torch.device("cpu"))
    drawing.draw(model, seed)
    return model
