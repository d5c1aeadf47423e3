"""The Hugging Face layout: `transformers` computes the same from our weights, and our decoder from its weights."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.trainer.start.llama import load_weights
from trainer.config.shapes import Data
from trainer.models.decoder import DecoderShape
from trainer.models.decoder.network import Decoder
from trainer.start import huggingface

VOCAB, LENGTH = 61, 24
DATA = Data(vocabulary=VOCAB, length=LENGTH)


def sizes(heads: int = 4, kv_heads: int = 2, rope_base: float = 10_000.0) -> DecoderShape:
    return DecoderShape(layers=2, width=32, heads=heads, kv_heads=kv_heads, hidden=48, rope_base=rope_base)


def decoder(model: DecoderShape) -> Decoder:
    """A decoder with weights large enough to reveal an error, and norms other than one."""
    torch.manual_seed(0)
    decoder = Decoder(model, DATA)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return decoder.eval()


def exported(folder: Path, model: DecoderShape) -> Decoder:
    """A decoder that is also exported to `folder`."""
    ours = decoder(model)
    folder.mkdir()
    value = huggingface.config_of(model, VOCAB, LENGTH, None)
    (folder / huggingface.CONFIG).write_text(json.dumps(value))
    (folder / huggingface.WEIGHTS).write_bytes(huggingface.encode_weights(ours.state_dict(), model, VOCAB))
    return ours


def theirs(folder: Path, **changed: Any) -> LlamaForCausalLM:
    """A Llama model of the sizes above, made and saved by `transformers`."""
    torch.manual_seed(0)
    config = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-5,
    }
    model = LlamaForCausalLM(LlamaConfig(**{**config, **changed})).eval()
    model.save_pretrained(folder)
    return model


def tokens() -> torch.Tensor:
    return torch.randint(0, VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(1))


def change(folder: Path, **changed: Any) -> None:
    path = folder / huggingface.CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("rope_base", [10_000.0, 500_000.0])
def test_transformers_computes_the_logits_of_our_decoder(tmp_path: Path, kv_heads: int, rope_base: float) -> None:
    ours = exported(tmp_path / "out", sizes(kv_heads=kv_heads, rope_base=rope_base))
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        difference = (loaded(tokens()).logits - ours(tokens())).abs().max()
    assert difference < 1e-5


def test_exported_weights_load_back_bit_by_bit(tmp_path: Path) -> None:
    ours = exported(tmp_path / "out", sizes()).state_dict()
    loaded = load_weights(tmp_path / "out")
    assert list(loaded) == list(ours)
    assert all(torch.equal(loaded[name], tensor) for name, tensor in ours.items())


@pytest.mark.parametrize("tied", [False, True])
def test_our_decoder_computes_the_logits_of_a_model_of_transformers(tmp_path: Path, tied: bool) -> None:
    llama = theirs(tmp_path, tie_word_embeddings=tied)
    ours = Decoder(huggingface.read_settings(tmp_path).model, DATA).eval()
    ours.load_state_dict(load_weights(tmp_path))
    with torch.no_grad():
        assert (llama(tokens()).logits - ours(tokens())).abs().max() < 1e-5


def test_weights_in_several_files_and_in_bfloat16_load_in_fp32(tmp_path: Path) -> None:
    llama = theirs(tmp_path / "whole").bfloat16()
    llama.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert len(huggingface.weight_files(tmp_path / "parts")) > 1
    loaded = load_weights(tmp_path / "parts")
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    assert torch.equal(loaded["blocks.1.feed_forward.up.weight"], llama.model.layers[1].mlp.up_proj.weight.float())


@pytest.mark.parametrize("kv_heads", [1, 4])
def test_the_shapes_are_those_of_a_decoder(kv_heads: int) -> None:
    with torch.device("meta"):
        state = Decoder(sizes(kv_heads=kv_heads), DATA).state_dict()
    entries = huggingface.weight_entries(sizes(kv_heads=kv_heads), VOCAB)
    assert {entry.ours: entry.shape for entry in entries} == {name: tuple(each.shape) for name, each in state.items()}


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        (DecoderShape(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, rope_base=500_000.0), 8_030_261_248),
        (DecoderShape(layers=80, width=8192, heads=64, kv_heads=8, hidden=28672, rope_base=500_000.0), 70_553_706_496),
    ],
)
def test_llama_3_has_as_many_parameters_as_published(model: DecoderShape, parameters: int) -> None:
    """The counts of meta-llama/Meta-Llama-3-8B and -70B, whose vocabulary has 128,256 tokens."""
    assert sum(math.prod(entry.shape) for entry in huggingface.weight_entries(model, 128_256)) == parameters


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "mistral"}, "model_type: found 'mistral', expected 'llama'"),
        ({"attention_bias": True}, "attention_bias: found True, expected False"),
        ({"hidden_act": "gelu"}, "hidden_act: found 'gelu', expected 'silu'"),
        ({"rms_norm_eps": 1e-6}, "rms_norm_eps: found 1e-06, expected 1e-05"),
        ({"head_dim": 16}, "head_dim: found 16, expected 8"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 1.0}}, "rope_type: found 'llama3', expected"),
        ({"num_attention_heads": 5}, "expected a divisor of width (32)"),
    ],
)
def test_settings_that_our_decoder_lacks_are_refused_by_name(tmp_path: Path, changed: dict[str, Any], message: str):
    theirs(tmp_path)
    change(tmp_path, **changed)
    with pytest.raises(ValueError, match=r"config\.json") as refused:
        huggingface.read_settings(tmp_path)
    assert message in str(refused.value)


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found no config.json, expected a model in the Hugging Face layout"):
        load_weights(tmp_path)


def test_tensors_that_do_not_fit_the_settings_are_refused_with_both_shapes(tmp_path: Path) -> None:
    theirs(tmp_path)
    change(tmp_path, intermediate_size=40)
    with pytest.raises(ValueError, match=r"gate_proj.weight: found \[48, 32\], expected \[40, 32\]"):
        load_weights(tmp_path)


def test_a_tensor_too_few_or_too_many_is_refused_by_name(tmp_path: Path) -> None:
    theirs(tmp_path)
    change(tmp_path, num_hidden_layers=3)
    with pytest.raises(
        ValueError, match=r"model.layers.2.input_layernorm.weight: found no such tensor, expected one of \[32\]"
    ):
        load_weights(tmp_path)
    change(tmp_path, num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"model.layers.1.*: found a tensor that our decoder does not have"):
        load_weights(tmp_path)


def test_a_missing_head_is_refused_unless_the_embeddings_are_tied(tmp_path: Path) -> None:
    theirs(tmp_path, tie_word_embeddings=True)
    change(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ValueError, match=r"lm_head.weight: found no such tensor, expected one of \[61, 32\]"):
        load_weights(tmp_path)


def test_a_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    theirs(tmp_path)
    weights = tmp_path / huggingface.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"model.safetensors: expected a safetensors file"):
        load_weights(tmp_path)


def test_old_files_with_rotary_frequencies_load(tmp_path: Path) -> None:
    theirs(tmp_path)
    weights = tmp_path / huggingface.WEIGHTS
    state = safetensors.torch.load(weights.read_bytes())
    old = {**state, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    weights.write_bytes(safetensors.torch.save(old))
    assert len(load_weights(tmp_path)) == len(state)
