"""Norms in mixed precision: fp32 sums, and one cast for all matrices that follow."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from slipway.trainer.config.shapes import Data
from slipway.trainer.models import build
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.decoder.attention import HeadNorm
from slipway.trainer.models.norms import LayerNorm, RMSNorm


@pytest.mark.parametrize("kind", [RMSNorm, LayerNorm])
def test_a_norm_of_fp32_gives_the_type_of_the_products_with_fp32_sums(kind: type[nn.Module]) -> None:
    norm, x = kind(64), 100 + torch.randn(4, 64)
    exact = norm(x)
    with torch.autocast("cpu", torch.bfloat16):
        narrow = norm(x)
    assert exact.dtype == torch.float32 and narrow.dtype == torch.bfloat16
    assert torch.equal(narrow, exact.bfloat16())


def test_the_norm_of_heads_adds_up_in_fp32_what_it_reads_in_16_bits() -> None:
    norm, x = HeadNorm(64), torch.randn(2, 4, 8, 64).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        normalized = norm(x)
    assert normalized.dtype == torch.bfloat16
    assert torch.equal(normalized, F.rms_norm(x.float(), (64,)).bfloat16())


def test_matrices_after_the_same_norm_share_its_output() -> None:
    """In bf16 queries, keys and values keep one tensor for the backward pass, and so do gate and up."""
    shape = DecoderShape(layers=1, width=32, heads=2, kv_heads=2, hidden=96)
    model = build(shape, Data(vocabulary=8, length=16))
    pointers: set[int] = set()

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.bfloat16 and tensor.shape[-1] == 32 and tensor.numel() == 3 * 16 * 32:
            pointers.add(tensor.untyped_storage().data_ptr())
        return tensor

    keeping = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with keeping, torch.autocast("cpu", torch.bfloat16):
        out = model.through(torch.randn(3, 16, 32, requires_grad=True))
    assert out.dtype == torch.float32
    assert len(pointers) == 3  # the outputs of the two norms, and the heads side by side before the last product
