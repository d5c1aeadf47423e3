"""Models; a new one is one file: a module with a `Shape` and a `Network`, which `model.kind` names."""

from trainer import shapes
from trainer.models.model import Data, Model
from trainer.shapes import DecoderShape, Shape


def build(shape: Shape, data: Data) -> Model:
    """The model of this shape, its weights drawn from torch's generator: seed it first. Raises Invalid."""
    shape.check(data)
    match shape:
        case DecoderShape():
            from trainer.models.decoder import Decoder

            return Decoder(shape, data.vocabulary, data.length)
        case _:
            model: Model = shapes.module(shape.kind).Network(shape, data)
            return model
