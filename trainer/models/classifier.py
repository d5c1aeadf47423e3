"""The base of all models of pictures: turns bytes into numbers, crops them, and learns one class for each picture."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from slipway.trainer.base import draws
from slipway.trainer.config.shapes import Augment, Data
from slipway.trainer.data.pictures import Labelled
from slipway.trainer.models.model import Model, Rows, SampleNumbers

PADDED = 8
"""The padding on each side before a crop is 1/8 of the picture's size (arXiv:1512.03385, 4.2)."""


class Classifier(Model):
    """Pictures in, logits for their classes out."""

    data: Data
    augment: Augment

    def prepare(self, rows: Rows, sample_ids: SampleNumbers, device: torch.device) -> tuple[Tensor, Tensor]:
        """Pixels from -1 to 1, [batch, channels, height, width], and classes, [batch]."""
        assert isinstance(rows, Labelled)
        pixels = torch.from_numpy(rows.pixels).to(device, non_blocking=True)
        if self.training and self.augment != "none":
            drawn = draws.uniforms(self.data.seed, sample_ids, 3)
            pixels = cropped(pixels, torch.from_numpy(drawn).to(device), flips=self.augment == "crop_flip")
        labels = torch.from_numpy(rows.labels.astype(np.int64)).to(device, non_blocking=True)
        return pixels.permute(0, 3, 1, 2).float() / 127.5 - 1, labels

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum of the pictures' cross-entropies; outputs: [batch, classes], targets: [batch]."""
        return F.cross_entropy(outputs.float(), targets, reduction="sum")

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).sum()

    @property
    def targets_per_sample(self) -> int:
        return 1


def cropped(pixels: Tensor, drawn: Tensor, flips: bool) -> Tensor:
    """A crop of each picture, of its own size, from a copy with a black border; with `flips`, half are mirrored.

    pixels: [batch, height, width, channels]; drawn: [batch, 3], from 0 to 1.
    """
    batch, height, width, _ = pixels.shape
    more = (-(-height // PADDED), -(-width // PADDED))
    padded = F.pad(pixels, (0, 0, more[1], more[1], more[0], more[0]))
    room = torch.tensor([2 * margin + 1 for margin in more], device=pixels.device)
    top, left_edge = (drawn[:, :2] * room).long().unbind(1)
    rows = top[:, None] + torch.arange(height, device=pixels.device)
    columns = left_edge[:, None] + torch.arange(width, device=pixels.device)
    if flips:
        columns = torch.where(drawn[:, 2:] < 0.5, columns.flip(1), columns)
    return padded[torch.arange(batch, device=pixels.device)[:, None, None], rows[:, :, None], columns[:, None]]
