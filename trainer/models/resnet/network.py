"""A residual network of bottlenecks (He et al., arXiv:1512.03385) with the stride in the 3x3 convolutions.

The last normalisation of a block begins at 0, so that the network begins shallow (Goyal et al., arXiv:1706.02677).
"""

import math

from torch import Tensor, nn

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.batch_norm import batch_norm
from slipway.trainer.models.classifier import Classifier
from slipway.trainer.models.initial_values import Constant, InitialValues, Normal, Uniform
from slipway.trainer.models.resnet import ResNetShape

EXPANSION = 4
"""A block's outputs are this many times as wide as its bottleneck."""
Size = tuple[int, int]


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, added to the input, or to its projection if the sizes differ."""

    def __init__(self, features: int, width: int, stride: int) -> None:
        super().__init__()
        out = EXPANSION * width
        self.reduce = _convolution(features, width, 1)
        self.reduce_norm = batch_norm(width)
        self.spatial = _convolution(width, width, 3, stride)
        self.spatial_norm = batch_norm(width)
        self.expand = _convolution(width, out, 1)
        self.expand_norm = batch_norm(out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or features != out:
            self.shortcut = nn.Sequential(_convolution(features, out, 1, stride), batch_norm(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.reduce_norm(self.reduce(x)).relu()
        y = self.spatial_norm(self.spatial(y)).relu()
        y = self.expand_norm(self.expand(y)) + self.shortcut(x)
        out: Tensor = y.relu()
        return out


class ResNet(Classifier):
    """Pictures in, logits for their classes out."""

    reads = ResNetShape.reads
    first_uses = ("stem",)
    last_uses = ("head",)
    recomputes = ResNetShape.recomputes

    def __init__(self, shape: ResNetShape, data: Data) -> None:
        super().__init__()
        self.shape = shape
        self.data = data
        self.augment = shape.augment
        self.stem = _stem(shape, data.picture[2])
        self.blocks = nn.ModuleList()
        features = shape.width
        for stage, count in enumerate(shape.blocks):
            width = shape.width << stage
            for number in range(count):
                self.blocks.append(Bottleneck(features, width, stride=2 if stage and not number else 1))
                features = EXPANSION * width
        self.head = nn.Linear(features, data.classes)

    def initial(self, name: str, tensor: Tensor) -> InitialValues:
        """Convolutions are normal, by the number of their outputs (arXiv:1502.01852, 2.2); the head is uniform."""
        if tensor.dim() == 4:
            return Normal(math.sqrt(2 / (tensor.shape[0] * tensor.shape[2] * tensor.shape[3])))
        if name.startswith("head."):
            return Uniform(1 / math.sqrt(self.head.in_features))
        ones = name.endswith(("norm.weight", "1.weight", "running_var")) and not name.endswith("expand_norm.weight")
        return Constant(1.0 if ones else 0.0)

    def first(self, inputs: Tensor) -> Tensor:
        """[batch, channels, height, width] to [batch, features, height / 4, width / 4] with the stem imagenet."""
        x: Tensor = self.stem(inputs)
        return x

    def last(self, x: Tensor) -> Tensor:
        """The mean over the picture, to logits: [batch, classes]."""
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits

    @property
    def flops_per_sample(self) -> int:
        """Twice the multiplications of convolutions and head (He et al., table 1), and twice that for backward.

        The first convolution computes no gradient of its inputs, which are pixels.
        """
        first, size = _multiplications(self.stem[0], self.data.picture[:2])
        if self.shape.stem == "imagenet":
            size = _size(size, 3, 2, 1)
        total = self.head.weight.numel()
        for block in self.blocks:
            assert isinstance(block, Bottleneck)
            if isinstance(block.shortcut, nn.Sequential):
                total += _multiplications(block.shortcut[0], size)[0]
            for convolution in (block.reduce, block.spatial, block.expand):
                count, size = _multiplications(convolution, size)
                total += count
        return 4 * first + 6 * total


def _stem(shape: ResNetShape, channels: int) -> nn.Sequential:
    if shape.stem == "small":
        return nn.Sequential(_convolution(channels, shape.width, 3), batch_norm(shape.width), nn.ReLU())
    convolution = _convolution(channels, shape.width, 7, stride=2)
    return nn.Sequential(convolution, batch_norm(shape.width), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))


def _convolution(features: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(features, out, kernel, stride, padding=kernel // 2, bias=False)


def _multiplications(convolution: nn.Module, size: Size) -> tuple[int, Size]:
    """The number of multiplications of a convolution on a picture of this size, and the size of its output."""
    assert isinstance(convolution, nn.Conv2d)
    kernel = convolution.kernel_size[0]
    stride = convolution.stride[0]
    height, width = _size(size, kernel, stride, kernel // 2)
    return convolution.weight.numel() * height * width, (height, width)


def _size(size: Size, kernel: int, stride: int, padding: int) -> Size:
    height, width = ((extent + 2 * padding - kernel) // stride + 1 for extent in size)
    return height, width


Network = ResNet
