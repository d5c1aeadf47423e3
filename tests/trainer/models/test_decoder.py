"""The decoder: what its arithmetic must keep to, whatever its weights."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from slipway.trainer.base.invalid import Invalid
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape, RopeScaling
from slipway.trainer.models.decoder.attention import DecoderAttention, rotate, rotations, windowed
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.models.decoder.presets import PRESETS
from tests.trainer.drawn import drawn

VOCAB, LENGTH = 64, 16
DATA = Data(vocabulary=VOCAB, length=LENGTH)


def sizes(heads: int = 4, kv_heads: int = 2, layers: int = 2) -> DecoderShape:
    return DecoderShape(layers=layers, width=32, heads=heads, kv_heads=kv_heads, hidden=48)


def decoder(**changed: int) -> Decoder:
    """A decoder with weights large enough to show an error."""
    torch.manual_seed(0)
    model = Decoder(sizes(**changed), DATA)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def tokens(rows: int = 2) -> torch.Tensor:
    return torch.randint(0, VOCAB, (rows, LENGTH), generator=torch.Generator().manual_seed(1))


def test_logits_have_one_row_a_token_and_one_column_a_word() -> None:
    assert decoder()(tokens(3)).shape == (3, LENGTH, VOCAB)


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_a_later_token_changes_no_earlier_logits_and_all_later_ones(kv_heads: int) -> None:
    model, token_ids = decoder(kv_heads=kv_heads), tokens()
    before = model(token_ids)
    for position in (1, LENGTH // 2, LENGTH - 1):
        changed = token_ids.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCAB
        difference = (model(changed) - before).abs().amax(-1)
        assert difference[:, :position].max() < 1e-5
        assert difference[:, position:].min() > 1e-5


def test_sequences_of_a_batch_do_not_see_each_other() -> None:
    model, token_ids = decoder(), tokens(3)
    assert torch.allclose(model(token_ids)[1:2], model(token_ids[1:2]), atol=1e-5)


def test_a_shorter_sequence_has_the_logits_of_the_beginning_of_a_longer_one() -> None:
    model, token_ids = decoder(), tokens()
    assert torch.allclose(model(token_ids[:, :5]), model(token_ids)[:, :5], atol=1e-5)


def test_grouped_query_attention_is_multi_head_attention_with_repeated_keys_and_values() -> None:
    torch.manual_seed(0)
    grouped, full = DecoderAttention(sizes(kv_heads=2)), DecoderAttention(sizes(kv_heads=4))
    features = grouped.features
    repeated = {
        name: weight.view(2, features, 32).repeat_interleave(2, 0).flatten(0, 1)
        if name[:3] in ("key", "val")
        else weight
        for name, weight in grouped.state_dict().items()
    }
    full.load_state_dict(repeated)
    x, rotation = torch.randn(2, LENGTH, 32), rotations(LENGTH, features, 10_000.0)
    assert torch.allclose(grouped(x, rotation), full(x, rotation), atol=1e-6)


def test_attention_is_the_textbook_formula() -> None:
    """softmax(Q K^T / sqrt(features)) V under a causal mask, written out."""
    torch.manual_seed(0)
    attention = DecoderAttention(sizes(kv_heads=4))
    x, rotation = torch.randn(1, LENGTH, 32), rotations(LENGTH, attention.features, 10_000.0)

    def split(projected: torch.Tensor) -> torch.Tensor:
        return projected.view(1, LENGTH, 4, attention.features).transpose(1, 2)

    query, key = (rotate(split(layer(x)), rotation) for layer in (attention.query, attention.key))
    scores = query @ key.transpose(-1, -2) / math.sqrt(attention.features)
    scores = scores.masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -math.inf)
    mixed = scores.softmax(-1) @ split(attention.value(x))
    expected = attention.out(mixed.transpose(1, 2).reshape(1, LENGTH, 32))
    assert torch.allclose(attention(x, rotation), expected, atol=1e-5)


def test_rotary_positions_make_products_depend_on_the_distance_alone() -> None:
    rotation = rotations(LENGTH, 8, 10_000.0)
    torch.manual_seed(0)
    query, key = (torch.randn(1, 1, 1, 8).expand(1, 1, LENGTH, 8) for _ in range(2))
    products = (rotate(query, rotation) @ rotate(key, rotation).transpose(-1, -2))[0, 0]
    for distance in range(LENGTH):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-5)


def test_rotary_positions_keep_lengths() -> None:
    x = torch.randn(2, 4, LENGTH, 8)
    assert torch.allclose(rotate(x, rotations(LENGTH, 8, 10_000.0)).norm(dim=-1), x.norm(dim=-1), atol=1e-5)


def test_flops_per_token_are_six_per_matrix_parameter_and_twelve_per_attended_feature() -> None:
    layer = 32 * 32 + 2 * 32 * 16 + 32 * 32 + 3 * 32 * 48
    head = 32 * VOCAB
    assert decoder(kv_heads=2).flops_per_token(LENGTH) == 6 * (2 * layer + head) + 12 * 2 * 32 * LENGTH


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_flops_per_token_are_what_torch_counts(kv_heads: int) -> None:
    """Forward and backward of all matrix products; the causal mask saves nothing in this count, as in PaLM's."""
    model, token_ids = decoder(kv_heads=kv_heads), tokens(3)
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        model(token_ids).sum().backward()
    assert counted.get_total_flops() == token_ids.numel() * model.flops_per_token(LENGTH)


def test_what_is_looked_up_counts_no_flops_and_a_tied_head_counts_once() -> None:
    options = {"positions": "learned", "longest": LENGTH, "norm": "layer", "activation": "gelu", "bias": "all"}
    shape: Any = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 4, "hidden": 48, **options}
    model, token_ids = Decoder(DecoderShape(**shape, tied=True), DATA), tokens(3)
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        model(token_ids).sum().backward()
    assert counted.get_total_flops() == token_ids.numel() * model.flops_per_token(LENGTH)


def test_a_fresh_decoder_predicts_every_word_alike() -> None:
    token_ids = tokens(8)
    loss = F.cross_entropy(drawn(sizes(), DATA)(token_ids).flatten(0, 1), token_ids.flatten())
    assert abs(float(loss.detach()) - math.log(VOCAB)) < 0.05


def test_weights_are_drawn_from_the_seed_and_residual_writers_are_smaller() -> None:
    first, again, other = (drawn(sizes(layers=8), DATA, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])
    assert float(first["head.weight"].std()) == pytest.approx(0.02, rel=0.1)
    assert float(first["blocks.0.attention.out.weight"].std()) == pytest.approx(0.02 / 4, rel=0.1)


def test_a_window_hides_all_that_lies_before_it() -> None:
    """Every token attends to itself and to the window - 1 before it, also where windows do not divide the length."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, 23, 8) for heads in (4, 2, 2))
    positions = torch.arange(23)
    for window in (1, 4, 5, 22):
        apart = positions[:, None] - positions
        mask = (apart >= 0) & (apart < window)
        expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        assert torch.allclose(windowed(query, key, value, window), expected, atol=1e-5), window


@pytest.mark.parametrize(
    ("changed", "field", "message"),
    [
        ({"positions": "learned"}, "longest", "expected the number of learned positions, above 0"),
        ({"longest": 8}, "longest", "expected 0, as rotary positions have no longest sequence"),
        ({"width": 30}, "heads", r"expected a divisor of width \(30\)"),
        ({"head_features": 7}, "head_features", "expected an even number of features a head"),
        ({"window": -1}, "window", "expected 0 or more"),
        (
            {"positions": "learned", "longest": 8, "rope_scaling": RopeScaling()},
            "rope_scaling",
            "expected null, as learned positions are not turned",
        ),
    ],
)
def test_options_that_exclude_each_other_are_refused(changed: dict[str, Any], field: str, message: str) -> None:
    fields: dict[str, Any] = {"layers": 1, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 8}
    with pytest.raises(Invalid, match=message) as refused:
        DecoderShape(**{**fields, **changed})
    assert refused.value.field == field


def test_a_sequence_longer_than_the_learned_positions_is_refused() -> None:
    with pytest.raises(Invalid, match=r"expected 1025 or more, the tokens of a sequence \(batch.length\)"):
        PRESETS["gpt2"].shape.check(Data(length=1025))


def test_an_option_that_came_later_changes_no_identity_at_its_default() -> None:
    assert set(sizes().section()) == {"kind", "layers", "width", "heads", "kv_heads", "hidden", "rope_base"}
    assert replace(sizes(), window=8).section()["window"] == 8
