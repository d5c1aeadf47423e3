"""The Hugging Face layout: `transformers` computes the same from our weights, and our models from its weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from torch import nn

from slipway.trainer import models
from slipway.trainer.config.shapes import Data
from slipway.trainer.data.shards import TokenizerRecord
from slipway.trainer.models.decoder import DecoderShape, RopeScaling
from slipway.trainer.models.decoder.network import Decoder
from slipway.trainer.models.decoder.presets import PRESETS, PublishedModel
from slipway.trainer.start import huggingface, initial
from slipway.trainer.start.families import table
from slipway.trainer.start.families.entries import Settings
from tests.trainer.start.llama import load_weights

VOCAB, LENGTH = 61, 24
DATA = Data(vocabulary=VOCAB, length=LENGTH)
CLOSE = 1e-5
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
    "rms_norm_eps": 1e-5,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
GPT2: dict[str, Any] = {"vocab_size": VOCAB, "n_positions": LENGTH, "n_embd": 32, "n_layer": 2, "n_head": 4}
SMALL: dict[str, Any] = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "hidden": 48}
REFERENCE_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama 2": ("Llama", SIZES),
    "Llama 2, tied": ("Llama", {**SIZES, "tie_word_embeddings": True}),
    "Llama 3.1": ("Llama", {**SIZES, "rope_parameters": LLAMA3_ROPE}),
    "Llama with biases": ("Llama", {**SIZES, "attention_bias": True, "mlp_bias": True}),
    "Mistral": ("Mistral", {**SIZES, "sliding_window": 7}),
    "Mistral without a window": ("Mistral", {**SIZES, "sliding_window": None}),
    "Qwen 2": ("Qwen2", {**SIZES, "rms_norm_eps": 1e-6}),
    "Qwen 3": ("Qwen3", {**SIZES, "rms_norm_eps": 1e-6, "head_dim": 12}),
    "GPT-2": ("GPT2", GPT2),
}
DECODER_SHAPES = {
    "Llama 2": DecoderShape(**SMALL),
    "Llama 2, one key head": DecoderShape(**{**SMALL, "kv_heads": 1}, rope_base=500_000.0),
    "Llama 3.1": DecoderShape(**SMALL, rope_scaling=RopeScaling(original_length=16)),
    "Llama, tied, with biases": DecoderShape(**SMALL, tied=True, bias="all"),
    "Mistral": DecoderShape(**SMALL, window=5),
    "Qwen 2": DecoderShape(**SMALL, bias="query_key_value", norm_epsilon=1e-6),
    "Qwen 2 with a window": DecoderShape(**SMALL, bias="query_key_value", window=9),
    "Qwen 3": DecoderShape(**SMALL, qk_norm=True, head_features=10, norm_epsilon=1e-6),
    "GPT-2": DecoderShape(
        **{**SMALL, "kv_heads": 4},
        positions="learned",
        longest=LENGTH,
        norm="layer",
        activation="gelu",
        bias="all",
        tied=True,
    ),
}
PUBLISHED = {"Llama 3.1": "llama-3.1-8b", "Mistral": "mistral-7b", "Qwen 2": "qwen2.5-7b", "Qwen 3": "qwen3-8b"}


def noisy(model: nn.Module) -> Any:
    """The model with weights large enough to reveal an error, and with norms other than one."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.eval()


def reference_model(folder: Path, kind: str = "Llama", task: str = "ForCausalLM", **config: Any) -> Any:
    """A model of `transformers`, made and saved by it."""
    named = "GPT2LMHeadModel" if kind == "GPT2" else f"{kind}{task}"
    model = noisy(getattr(transformers, named)(getattr(transformers, f"{kind}Config")(**config or SIZES)))
    model.save_pretrained(folder)
    return model


def imported(folder: Path, data: Data = DATA) -> Any:
    """Our model with the weights in `folder`."""
    settings = huggingface.read_settings(folder)
    model = models.build(settings.model, data)
    state = load_weights(folder)
    model.load_state_dict({name: state[name] for name in model.state_dict()})
    return model.eval()


def tokens() -> torch.Tensor:
    return torch.randint(0, VOCAB, (3, LENGTH), generator=torch.Generator().manual_seed(1))


def change(folder: Path, **changed: Any) -> None:
    path = folder / huggingface.CONFIG
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


@pytest.mark.parametrize("name", REFERENCE_CONFIGS)
def test_our_decoder_computes_the_logits_of_a_model_of_transformers(tmp_path: Path, name: str) -> None:
    kind, config = REFERENCE_CONFIGS[name]
    expected = reference_model(tmp_path, kind, **config)
    with torch.no_grad():
        assert (expected(tokens()).logits - imported(tmp_path)(tokens())).abs().max() < CLOSE


@pytest.mark.parametrize("name", DECODER_SHAPES)
def test_transformers_computes_the_logits_of_our_decoder(tmp_path: Path, name: str) -> None:
    """The export itself is tested in test_export.py; here are the names, the settings and the arithmetic."""
    shape = DECODER_SHAPES[name]
    decoder = noisy(Decoder(shape, DATA))
    (tmp_path / huggingface.CONFIG).write_text(json.dumps(huggingface.config_of(shape, DATA, "float32", None)))
    safetensors.torch.save_file(stored(decoder), tmp_path / huggingface.WEIGHTS, metadata={"format": "pt"})
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert (loaded(tokens()).logits - decoder(tokens())).abs().max() < CLOSE
    assert huggingface.read_settings(tmp_path).model == shape
    assert all(torch.equal(tensor, load_weights(tmp_path)[name]) for name, tensor in decoder.state_dict().items())


def stored(model: Decoder) -> dict[str, torch.Tensor]:
    """The tensors of a decoder as its family stores them."""
    tensors: dict[str, torch.Tensor] = {}
    state = model.state_dict()
    for entry in entries_of(model.config):
        if entry.name in state:
            stored_tensor = tensors.setdefault(entry.hf_name, torch.empty(entry.stored))
            entry.read(stored_tensor).copy_(state[entry.name])
    return tensors


def entries_of(shape: DecoderShape, vocabulary: int = VOCAB) -> Any:
    data = Data(vocabulary=vocabulary, length=LENGTH)
    return table.entries(Settings(table.config(shape, data)["model_type"], shape, data))


@pytest.mark.parametrize("name", DECODER_SHAPES)
def test_the_shapes_are_those_of_a_decoder(name: str) -> None:
    with torch.device("meta"):
        state = Decoder(DECODER_SHAPES[name], DATA).state_dict()
    entries = [entry for entry in entries_of(DECODER_SHAPES[name]) if entry.name in state]
    assert {entry.name: entry.shape for entry in entries} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }


@pytest.mark.parametrize("published", PRESETS.values(), ids=list(PRESETS))
def test_a_preset_has_as_many_parameters_as_published(published: PublishedModel) -> None:
    with torch.device("meta"):
        model = Decoder(published.shape, Data(vocabulary=published.vocabulary, length=8))
    assert sum(parameter.numel() for parameter in model.parameters()) == published.parameters


def test_a_tied_model_fits_a_recipe_with_two_matrices_and_not_the_reverse(tmp_path: Path) -> None:
    tokenizer = TokenizerRecord("0" * 64, VOCAB, VOCAB - 1)
    reference_model(tmp_path / "tied", **{**SIZES, "tie_word_embeddings": True})
    reference_model(tmp_path / "apart")
    initial.check_fit("huggingface", tmp_path / "tied", DecoderShape(**SMALL), tokenizer)
    initial.check_fit("huggingface", tmp_path / "tied", DecoderShape(**SMALL, tied=True), tokenizer)
    with pytest.raises(ValueError, match=r"model.tied: found False, expected True"):
        initial.check_fit("huggingface", tmp_path / "apart", DecoderShape(**SMALL, tied=True), tokenizer)


def test_published_files_of_gpt2_load(tmp_path: Path) -> None:
    """They have no prefix and no head, but the causal mask of each block."""
    reference_model(tmp_path, "GPT2", **GPT2)
    path, weights = tmp_path / huggingface.WEIGHTS, load_weights(tmp_path)
    state = {name.removeprefix("transformer."): tensor for name, tensor in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file({**state, "h.0.attn.bias": torch.ones(1, 1, 4, 4)}, path)
    assert all(torch.equal(tensor, weights[name]) for name, tensor in load_weights(tmp_path).items())


def test_weights_in_several_files_and_in_bfloat16_load_in_fp32(tmp_path: Path) -> None:
    llama = reference_model(tmp_path / "whole").bfloat16()
    llama.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    assert len(huggingface.weight_files(tmp_path / "parts")) > 1
    loaded = load_weights(tmp_path / "parts")
    assert {tensor.dtype for tensor in loaded.values()} == {torch.float32}
    assert torch.equal(loaded["blocks.1.feed_forward.up.weight"], llama.model.layers[1].mlp.up_proj.weight.float())


@pytest.mark.parametrize("kind", ["Llama", "GPT2"])
def test_a_box_of_a_tensor_is_read_alone(tmp_path: Path, kind: str) -> None:
    """Also where it is a part of a fused tensor that is stored with inputs as rows."""
    reference_model(tmp_path, kind, **(GPT2 if kind == "GPT2" else SIZES))
    stored = huggingface.StoredWeights(tmp_path, huggingface.read_settings(tmp_path))
    state = stored.state()
    for entry in stored.entries:
        offsets = tuple(size // 2 for size in entry.shape)
        sizes = tuple(size - offset for size, offset in zip(entry.shape, offsets, strict=True))
        box = tuple(slice(offset, None) for offset in offsets)
        assert torch.equal(stored.read(entry, offsets, sizes).float(), state[entry.name][box]), entry.name


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model_type": "gemma"}, "model_type: found 'gemma', expected one of llama, mistral, qwen2, qwen3, gpt2,"),
        ({"attention_bias": True}, "attention_bias: found True, expected False"),
        ({"hidden_act": "gelu"}, "hidden_act: found 'gelu', expected 'silu'"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rope_type: found 'yarn', expected 'default'"),
        ({"num_attention_heads": 5, "head_dim": None}, "expected a divisor of heads (5)"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4}, "max_window_layers: found"),
    ],
)
def test_settings_that_our_decoder_lacks_are_refused_by_name(tmp_path: Path, changed: dict[str, Any], message: str):
    reference_model(tmp_path)
    change(tmp_path, **changed)
    with pytest.raises(ValueError, match=r"config\.json") as refused:
        huggingface.read_settings(tmp_path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (DecoderShape(**SMALL, norm="layer"), "found positions rotary, norm layer"),
        (DecoderShape(**SMALL, qk_norm=True, bias="all"), "found bias all, qk_norm True"),
        (DecoderShape(**SMALL, bias="all", window=4), "found bias all, qk_norm False, window 4"),
    ],
)
def test_a_decoder_that_transformers_does_not_have_is_refused(shape: DecoderShape, message: str) -> None:
    with pytest.raises(ValueError, match="transformers has no such model") as refused:
        huggingface.config_of(shape, DATA, "float32", None)
    assert message in str(refused.value)


def test_a_folder_without_a_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found no config.json, expected a model in the Hugging Face layout"):
        load_weights(tmp_path)


def test_tensors_that_do_not_fit_are_all_named_with_numbers_and_remedy(tmp_path: Path) -> None:
    reference_model(tmp_path)
    change(tmp_path, intermediate_size=40)
    with pytest.raises(ValueError, match=r"6 tensors of another shape: .*set the sizes in config.json") as refused:
        load_weights(tmp_path)
    for layer in (0, 1):
        assert f"layers.{layer}.mlp.gate_proj.weight: found [48, 32], expected [40, 32]" in str(refused.value)


def test_tensors_too_few_or_too_many_are_named_with_their_shape(tmp_path: Path) -> None:
    reference_model(tmp_path)
    change(tmp_path, num_hidden_layers=3)
    with pytest.raises(ValueError, match=r"9 tensors missing: .*, and 1 more: fetch all files again") as refused:
        load_weights(tmp_path)
    assert "model.layers.2.input_layernorm.weight: found no such tensor, expected one of [32]" in str(refused.value)
    change(tmp_path, num_hidden_layers=1)
    with pytest.raises(ValueError, match=r"9 tensors too many: .*or remove these from the files") as refused:
        load_weights(tmp_path)
    problem = "model.layers.1.mlp.down_proj.weight: found a tensor of [32, 48] that our model does not have"
    assert problem in str(refused.value)


def test_a_missing_head_is_refused_unless_the_embeddings_are_tied(tmp_path: Path) -> None:
    reference_model(tmp_path, **{**SIZES, "tie_word_embeddings": True})
    change(tmp_path, tie_word_embeddings=False)
    with pytest.raises(ValueError, match=r"lm_head.weight: found no such tensor, expected one of \[61, 32\]"):
        load_weights(tmp_path)


def test_a_truncated_file_is_refused_by_name(tmp_path: Path) -> None:
    reference_model(tmp_path)
    weights = tmp_path / huggingface.WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"model.safetensors: expected a safetensors file"):
        load_weights(tmp_path)


def test_an_index_that_is_none_is_refused_by_name(tmp_path: Path) -> None:
    for content in ("{", "{}", '{"weight_map": 3}'):
        (tmp_path / huggingface.INDEX).write_text(content)
        with pytest.raises(ValueError, match=r"index.json: expected JSON whose weight_map has the file of each tensor"):
            huggingface.weight_files(tmp_path)


def test_old_files_with_rotary_frequencies_load(tmp_path: Path) -> None:
    reference_model(tmp_path)
    weights = tmp_path / huggingface.WEIGHTS
    state = safetensors.torch.load(weights.read_bytes())
    old = {**state, "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    weights.write_bytes(safetensors.torch.save(old))
    assert len(load_weights(tmp_path)) == len(state)
