"""A decoder that drops activations and scales the rest, by three generators."""

import random
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.network import Decoder


@dataclass(frozen=True, kw_only=True)
class Shape(DecoderShape):
    kind: str = "tests.trainer.dropping"  # type: ignore[assignment]


class Network(Decoder):
    def first(self, inputs: Tensor) -> Tensor:
        scale = 1 + 0.01 * random.random() + 0.01 * float(np.random.random())
        return F.dropout(super().first(inputs), 0.1, self.training) * scale
