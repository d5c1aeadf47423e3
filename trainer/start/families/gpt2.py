"""GPT-2: matrices stored with inputs as rows, and queries, keys and values fused into one."""

from collections.abc import Iterator, Mapping
from typing import Any

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.start.families.entries import Settings, WeightEntry, only

PREFIX = "transformer."
HEAD = "lm_head.weight"
FURTHER = (".attn.bias", ".attn.masked_bias", HEAD)
"""Tensors that are not read: the causal mask of each block, and the head of tied models."""


def read(value: Mapping[str, Any]) -> Settings:
    """The settings in a config.json of GPT-2. Raises ValueError for settings that our decoder does not have."""
    only(value, activation_function=("gelu_new", "gelu_pytorch_tanh"), scale_attn_weights=True)
    only(value, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width = value["n_embd"]
    heads = value["n_head"]
    model = DecoderShape(
        layers=value["n_layer"],
        width=width,
        heads=heads,
        kv_heads=heads,
        hidden=value.get("n_inner") or 4 * width,
        positions="learned",
        longest=value["n_positions"],
        norm="layer",
        norm_epsilon=float(value.get("layer_norm_epsilon", 1e-5)),
        activation="gelu",
        bias="all",
        tied=value.get("tie_word_embeddings", True),
    )
    return Settings(value["model_type"], model, Data(vocabulary=value["vocab_size"], length=value["n_positions"]))


def entries(settings: Settings) -> list[WeightEntry]:
    """All tensors of a GPT-2; a tied head is stored under the name of the embedding."""
    model = settings.model
    vocabulary = settings.data.vocabulary
    assert isinstance(model, DecoderShape)
    width = model.width
    embedding = f"{PREFIX}wte.weight"
    return [
        WeightEntry("embedding.weight", embedding, (vocabulary, width)),
        WeightEntry("positions.weight", f"{PREFIX}wpe.weight", (model.longest, width)),
        *(entry for layer in range(model.layers) for entry in _block(model, layer)),
        *_norm("norm", f"{PREFIX}ln_f", width),
        WeightEntry("head.weight", embedding if model.tied else HEAD, (vocabulary, width)),
    ]


def config(model: DecoderShape, data: Data) -> dict[str, Any]:
    """The fields of config.json beside those of all families. Raises ValueError for a decoder that is no GPT-2."""
    fits = (model.norm, model.activation, model.bias) == ("layer", "gelu", "all")
    plain = model.kv_heads == model.heads and not (model.window or model.qk_norm or model.head_features)
    if model.positions != "learned" or not fits or not plain:
        raise ValueError(
            f"model: found positions {model.positions}, norm {model.norm}, activation {model.activation}, bias "
            f"{model.bias}, expected learned, layer, gelu, all (GPT-2, without kv_heads, window, qk_norm and "
            "head_features of its own) or rotary, rms, swiglu (Llama): transformers has no such model"
        )
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        "n_layer": model.layers,
        "n_embd": model.width,
        "n_head": model.heads,
        "n_inner": model.hidden,
        "n_positions": model.longest,
        "layer_norm_epsilon": model.norm_epsilon,
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
    }


def standard(name: str) -> str:
    """`name` with the prefix, which files without the head lack."""
    if name.startswith((PREFIX, "lm_head.")):
        return name
    return f"{PREFIX}{name}"


def _block(model: DecoderShape, layer: int) -> Iterator[WeightEntry]:
    prefix = f"blocks.{layer}."
    hf_prefix = f"{PREFIX}h.{layer}."
    width = model.width
    yield from _norm(f"{prefix}attention_norm", f"{hf_prefix}ln_1", width)
    for part, name in enumerate(("query", "key", "value")):
        own_name = f"{prefix}attention.{name}"
        fused = f"{hf_prefix}attn.c_attn"
        begin = part * width
        rows = 3 * width
        yield WeightEntry(f"{own_name}.weight", f"{fused}.weight", (width, width), begin, rows, transposed=True)
        yield WeightEntry(f"{own_name}.bias", f"{fused}.bias", (width,), begin, rows)
    yield from _matrix(f"{prefix}attention.out", f"{hf_prefix}attn.c_proj", (width, width))
    yield from _norm(f"{prefix}feed_forward_norm", f"{hf_prefix}ln_2", width)
    yield from _matrix(f"{prefix}feed_forward.up", f"{hf_prefix}mlp.c_fc", (model.hidden, width))
    yield from _matrix(f"{prefix}feed_forward.down", f"{hf_prefix}mlp.c_proj", (width, model.hidden))


def _matrix(prefix: str, hf_prefix: str, shape: tuple[int, int]) -> Iterator[WeightEntry]:
    yield WeightEntry(f"{prefix}.weight", f"{hf_prefix}.weight", shape, transposed=True)
    yield WeightEntry(f"{prefix}.bias", f"{hf_prefix}.bias", shape[:1])


def _norm(prefix: str, hf_prefix: str, width: int) -> Iterator[WeightEntry]:
    for part in ("weight", "bias"):
        yield WeightEntry(f"{prefix}.{part}", f"{hf_prefix}.{part}", (width,))
