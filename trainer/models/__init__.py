"""Models; a new one is one file: a module with a `Shape` and a `Network`, which `model.kind` names."""

from trainer import shapes
from trainer.models.model import Data, Model
from trainer.shapes import DecoderShape, EncoderShape, ResNetShape, Shape, VisionShape


def build(shape: Shape, data: Data) -> Model:
    """The model of this shape, its weights drawn from torch's generator: seed it first. Raises Invalid."""
    shape.check(data)
    match shape:
        case DecoderShape():
            from trainer.models.decoder import Decoder

            return Decoder(shape, data.vocabulary, data.length)
        case EncoderShape():
            from trainer.models.encoder import Encoder

            return Encoder(shape, data)
        case ResNetShape():
            from trainer.models.resnet import ResNet

            return ResNet(shape, data)
        case VisionShape():
            from trainer.models.vision import VisionTransformer

            return VisionTransformer(shape, data)
        case _:
            model: Model = shapes.module(shape.kind).Network(shape, data)
            return model
