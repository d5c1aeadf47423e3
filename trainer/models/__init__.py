"""Models; a new one is one file."""

from trainer.models.model import Data, Model
from trainer.shapes import DecoderShape, Shape


def build(shape: Shape, data: Data) -> Model:
    """The model of this shape, its weights drawn from torch's generator: seed it first."""
    match shape:
        case DecoderShape():
            from trainer.models.decoder import Decoder

            return Decoder(shape, data.vocabulary, data.length)
        case _:
            raise ValueError(f"model.kind: no model of kind {shape.kind}")
