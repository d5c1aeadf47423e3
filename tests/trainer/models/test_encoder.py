"""The encoder: which tokens it must predict, and what its arithmetic must keep to."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.models.encoder.network import Encoder, EncoderAttention, masked
from slipway.trainer.models.model import NO_TARGET

CPU = torch.device("cpu")
DATA = Data(vocabulary=50, length=40, seed=3)
MASK = DATA.vocabulary
POSITIONS = np.arange(2000, dtype=np.uint64)


def encoder(share: float = 0.15) -> Encoder:
    torch.manual_seed(0)
    return Encoder(EncoderShape(layers=2, width=32, heads=4, hidden=48, masked=share), DATA).eval()


def windows(rows: int = len(POSITIONS)) -> np.ndarray:
    return np.random.default_rng(1).integers(0, DATA.vocabulary, (rows, DATA.length + 1), np.uint16)


def prepared(model: Encoder, rows: int = len(POSITIONS)) -> tuple[torch.Tensor, torch.Tensor]:
    return model.prepare(windows(rows), POSITIONS[:rows], CPU)


@pytest.mark.parametrize("share", [0.01, 0.15, 0.5])
def test_every_sequence_has_exactly_the_configured_share_of_targets(share: float) -> None:
    model = encoder(share)
    _, targets = prepared(model)
    assert model.targets_per_sample == max(1, round(share * DATA.length))
    assert ((targets != NO_TARGET).sum(1) == model.targets_per_sample).all()


def test_four_in_five_targets_are_masked_one_in_ten_is_a_random_token_and_the_rest_is_kept() -> None:
    """As BERT does it (arXiv:1810.04805, section 3.1). One in 50 of the random tokens is the one it stands for."""
    tokens = torch.from_numpy(windows()[:, :-1].astype(np.int64))
    inputs, targets = prepared(encoder())
    chosen = targets != NO_TARGET
    assert torch.equal(targets[chosen], tokens[chosen])
    assert torch.equal(inputs[~chosen], tokens[~chosen])
    assert (inputs[chosen] == MASK).float().mean().item() == pytest.approx(0.8, abs=0.01)
    assert (inputs[chosen] == tokens[chosen]).float().mean().item() == pytest.approx(0.1 + 0.1 / 50, abs=0.01)
    other = inputs[chosen & (inputs != MASK) & (inputs != tokens)]
    assert torch.unique(other).tolist() == list(range(DATA.vocabulary))


def test_every_place_of_a_sequence_is_chosen_equally_often() -> None:
    _, targets = prepared(encoder())
    assert (targets != NO_TARGET).float().mean(0).tolist() == pytest.approx([0.15] * DATA.length, abs=0.04)


def test_the_mask_depends_on_the_position_and_the_seed_only() -> None:
    tokens = windows()[:, :-1]
    inputs, _ = masked(tokens, POSITIONS, DATA, 6)
    part, _ = masked(tokens[5:8], POSITIONS[5:8], DATA, 6)
    assert np.array_equal(part, inputs[5:8])
    other_seed, _ = masked(tokens, POSITIONS, Data(vocabulary=50, length=40, seed=4), 6)
    assert not np.array_equal(other_seed, inputs)


def test_attention_is_torchs_own_for_many_heads() -> None:
    torch.manual_seed(0)
    attention, reference = EncoderAttention(32, 4), torch.nn.MultiheadAttention(32, 4, batch_first=True)
    parts = (attention.query, attention.key, attention.value)
    with torch.no_grad():
        reference.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        reference.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        reference.out_proj.weight.copy_(attention.out.weight)
        reference.out_proj.bias.copy_(attention.out.bias)
    x = torch.randn(2, 7, 32)
    torch.testing.assert_close(attention(x), reference(x, x, x)[0], rtol=1e-5, atol=1e-6)


def test_a_token_is_predicted_from_both_sides() -> None:
    model = encoder()
    inputs, _ = prepared(model, 1)
    for position in (0, DATA.length - 1):
        changed = inputs.clone()
        changed[0, position] = (changed[0, position] + 1) % DATA.vocabulary
        assert ((model(changed) - model(inputs)).abs().amax(-1) > 1e-6).all()


def test_the_head_is_the_embedding() -> None:
    model = encoder()
    x = torch.randn(1, 3, 32)
    hidden = model.transform_norm(F.gelu(model.transform(x)))
    torch.testing.assert_close(model.last(x), hidden @ model.embedding.weight.T + model.bias)


def test_the_loss_is_the_sum_over_the_targets_only() -> None:
    model = encoder()
    inputs, targets = prepared(model, 4)
    logits = model(inputs)
    chosen = targets != NO_TARGET
    expected = F.cross_entropy(logits[chosen], targets[chosen], reduction="sum")
    torch.testing.assert_close(model.loss(logits, targets), expected)
    assert model.correct(logits, targets) == (logits.argmax(-1)[chosen] == targets[chosen]).sum()


def test_flops_per_sample_are_what_torch_counts() -> None:
    """Forward and backward of all matrix products."""
    model = encoder()
    inputs, targets = prepared(model, 3)
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        torch.autograd.backward(model.loss(model(inputs), targets))
    assert counted.get_total_flops() == 3 * model.flops_per_sample
