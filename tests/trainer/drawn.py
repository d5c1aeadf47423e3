"""Models in one process with the weights that a training begins with."""

import torch

from trainer import models
from trainer.config.shapes import Data, Shape
from trainer.models.model import Model
from trainer.models.outline import without_memory
from trainer.start import drawing


def drawn(shape: Shape, data: Data, seed: int = 0) -> Model:
    with without_memory():
        model = models.build(shape, data)
    drawing.allocate(model, model, torch.device("cpu"))
    drawing.draw(model, seed)
    return model
