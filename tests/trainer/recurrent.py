"""A model in one file: a recurrent network that predicts the next token, named by a recipe as `model.kind`."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slipway.trainer.base.invalid import positive
from slipway.trainer.config import shapes
from slipway.trainer.models.model import Model, Rows, SampleNumbers


@dataclass(frozen=True, kw_only=True)
class Shape(shapes.Shape):
    reads = "tokens"
    width: int
    layers: int = 1

    def __post_init__(self) -> None:
        positive(self, "width", "layers")


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.GRU(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.cell(x)[0]
        return out


class Network(Model):
    reads = Shape.reads
    first_uses = ("embedding",)
    last_uses = ("head",)
    causal = True

    def __init__(self, shape: Shape, data: shapes.Data) -> None:
        super().__init__()
        self.length = data.length
        self.embedding = nn.Embedding(data.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Layer(shape.width) for _ in range(shape.layers))
        self.head = nn.Linear(shape.width, data.vocabulary)

    def first(self, inputs: Tensor) -> Tensor:
        x: Tensor = self.embedding(inputs)
        return x

    def last(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x)
        return logits

    def prepare(self, rows: Rows, numbers: SampleNumbers, device: torch.device) -> tuple[Tensor, Tensor]:
        assert isinstance(rows, np.ndarray)
        tokens = torch.from_numpy(rows).to(device).long()
        return tokens[:, :-1], tokens[:, 1:]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.float().flatten(0, 1), targets.flatten(), reduction="sum")

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).sum()

    @property
    def targets_per_sample(self) -> int:
        return self.length

    @property
    def flops_per_sample(self) -> int:
        """Six for each weight of a matrix and each token: two forward, four backward."""
        matrices = sum(p.numel() for p in self.parameters() if p.dim() == 2) - self.embedding.weight.numel()
        return 6 * matrices * self.length
