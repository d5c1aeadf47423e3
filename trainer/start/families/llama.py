"""Llama and its successors: Mistral, Qwen 2 and Qwen 3.

All rotate the pairs (i, i + features / 2) of a head, as our decoder does. So the rows of the weights have the same
order, and the layouts differ only in names.
"""

from collections.abc import Mapping
from typing import Any

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape, RopeScaling
from slipway.trainer.start.families.entries import Settings, WeightEntry, only

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
FURTHER = ("rotary_emb.inv_freq", HEAD)
"""Tensors that are not read: the rotary frequencies of old files, and the head of tied models."""


def read(value: Mapping[str, Any]) -> Settings:
    """The settings in a config.json of `ARCHITECTURES`. Raises ValueError for settings that our decoder lacks."""
    kind = value["model_type"]
    only(value, hidden_act="silu", partial_rotary_factor=1.0)
    width = value["hidden_size"]
    heads = value["num_attention_heads"]
    features = value.get("head_dim") or width // heads
    model = DecoderShape(
        layers=value["num_hidden_layers"],
        width=width,
        heads=heads,
        kv_heads=value.get("num_key_value_heads") or heads,
        hidden=value["intermediate_size"],
        rope_base=_rope_base(value),
        rope_scaling=_rope_scaling(value),
        norm_epsilon=float(value["rms_norm_eps"]),
        bias=_bias(kind, value),  # type: ignore[arg-type]
        window=_window(kind, value),
        qk_norm=kind == "qwen3",
        tied=value.get("tie_word_embeddings", False),
        head_features=0 if features * heads == width else features,
    )
    return Settings(
        value["model_type"], model, Data(vocabulary=value["vocab_size"], length=value.get("max_position_embeddings", 0))
    )


def entries(settings: Settings) -> list[WeightEntry]:
    """All tensors of a decoder; a tied head is stored under the name of the embedding."""
    model = settings.model
    vocabulary = settings.data.vocabulary
    assert isinstance(model, DecoderShape)
    blocks = [
        WeightEntry(f"blocks.{layer}.{name}", f"model.layers.{layer}.{hf_name}", shape)
        for layer in range(model.layers)
        for name, hf_name, shape in _block(model)
    ]
    head = [WeightEntry("head.weight", EMBEDDING if model.tied else HEAD, (vocabulary, model.width))]
    return [
        WeightEntry("embedding.weight", EMBEDDING, (vocabulary, model.width)),
        *blocks,
        WeightEntry("norm.weight", "model.norm.weight", (model.width,)),
        *head,
    ]


def config(model: DecoderShape, data: Data) -> dict[str, Any]:
    """The fields of config.json beside those of all families. Raises ValueError for a decoder that no family has."""
    kind = _kind(model)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": model.rope_base}
    if model.rope_scaling is not None:
        rope |= {
            "rope_type": "llama3",
            "factor": model.rope_scaling.factor,
            "low_freq_factor": model.rope_scaling.low_frequency_factor,
            "high_freq_factor": model.rope_scaling.high_frequency_factor,
            "original_max_position_embeddings": model.rope_scaling.original_length,
        }
    return {
        "model_type": kind,
        "architectures": [ARCHITECTURES[kind]],
        "hidden_act": "silu",
        "num_hidden_layers": model.layers,
        "hidden_size": model.width,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.features,
        "intermediate_size": model.hidden,
        "max_position_embeddings": data.length,
        "rms_norm_eps": model.norm_epsilon,
        # transformers reads rope_parameters from version 5 on; other readers and versions read the other two.
        "rope_theta": model.rope_base,
        "rope_parameters": rope,
        "rope_scaling": None if model.rope_scaling is None else rope,
        **_own_settings(kind, model),
    }


def _own_settings(kind: str, model: DecoderShape) -> dict[str, Any]:
    """The settings that not all of these families have."""
    if kind == "llama":
        return {"attention_bias": model.bias == "all", "mlp_bias": model.bias == "all"}
    if kind == "mistral":
        return {"sliding_window": model.window}
    sliding = {"use_sliding_window": False, "sliding_window": None, "max_window_layers": model.layers}
    if model.window:
        sliding = {"use_sliding_window": True, "sliding_window": model.window, "max_window_layers": 0}
    if kind == "qwen3":
        sliding["attention_bias"] = False
    return sliding


def _kind(model: DecoderShape) -> str:
    """The model type of transformers that computes the same as this decoder. Raises ValueError."""
    if model.qk_norm and model.bias == "none":
        return "qwen3"
    if model.bias == "query_key_value" and not model.qk_norm and not model.head_features:
        return "qwen2"
    if not model.qk_norm and model.bias != "query_key_value" and not (model.window and model.bias == "all"):
        return "mistral" if model.window else "llama"
    raise ValueError(
        f"model: found bias {model.bias}, qk_norm {model.qk_norm}, window {model.window}, head_features "
        f"{model.head_features}, expected those of Llama, Mistral, Qwen 2 or Qwen 3: transformers has no such model"
    )


def _block(model: DecoderShape) -> list[tuple[str, str, tuple[int, ...]]]:
    """Our name, their name and the shape of each tensor of a block."""
    queries = model.heads * model.features
    keys = model.kv_heads * model.features
    matrices = [
        ("attention.query", "self_attn.q_proj", (queries, model.width)),
        ("attention.key", "self_attn.k_proj", (keys, model.width)),
        ("attention.value", "self_attn.v_proj", (keys, model.width)),
        ("attention.out", "self_attn.o_proj", (model.width, queries)),
        ("feed_forward.gate", "mlp.gate_proj", (model.hidden, model.width)),
        ("feed_forward.up", "mlp.up_proj", (model.hidden, model.width)),
        ("feed_forward.down", "mlp.down_proj", (model.width, model.hidden)),
    ]
    with_bias = {"none": 0, "query_key_value": 3, "all": len(matrices)}[model.bias]
    head_norms = [("attention.query_norm", "self_attn.q_norm"), ("attention.key_norm", "self_attn.k_norm")]
    norms = [("attention_norm", "input_layernorm"), ("feed_forward_norm", "post_attention_layernorm")]
    return [
        *((f"{name}.weight", f"{hf_name}.weight", shape) for name, hf_name, shape in matrices),
        *((f"{name}.bias", f"{hf_name}.bias", shape[:1]) for name, hf_name, shape in matrices[:with_bias]),
        *((f"{name}.weight", f"{hf_name}.weight", (model.features,)) for name, hf_name in head_norms if model.qk_norm),
        *((f"{name}.weight", f"{hf_name}.weight", (model.width,)) for name, hf_name in norms),
    ]


def _bias(kind: str, value: Mapping[str, Any]) -> str:
    if kind == "qwen2":
        return "query_key_value"
    attention = value.get("attention_bias", False)
    feed_forward = value.get("mlp_bias", False)
    if attention and kind == "llama" and feed_forward:
        return "all"
    only(value, attention_bias=False, mlp_bias=False)
    return "none"


def _window(kind: str, value: Mapping[str, Any]) -> int:
    """The number of tokens to which a token attends, in every layer; 0 for all. Raises ValueError if layers differ."""
    if kind == "mistral":
        return value.get("sliding_window", 4096) or 0
    if not value.get("use_sliding_window", False) or not value.get("sliding_window"):
        return 0
    if value.get("max_window_layers", 28) != 0:
        raise ValueError(
            f"max_window_layers: found {value.get('max_window_layers')}, expected 0: windows in all layers"
        )
    return int(value["sliding_window"])


def _rope(value: Mapping[str, Any]) -> Mapping[str, Any]:
    rope: Mapping[str, Any] = value.get("rope_parameters") or value.get("rope_scaling") or {}
    return rope


def _rope_base(value: Mapping[str, Any]) -> float:
    return float(_rope(value).get("rope_theta", value.get("rope_theta", 10_000.0)))


def _rope_scaling(value: Mapping[str, Any]) -> RopeScaling | None:
    rope = _rope(value)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind != "llama3":
        raise ValueError(f"rope_type: found {kind!r}, expected 'default' or 'llama3', the values of our decoder")
    return RopeScaling(
        factor=float(rope["factor"]),
        low_frequency_factor=float(rope["low_freq_factor"]),
        high_frequency_factor=float(rope["high_freq_factor"]),
        original_length=rope["original_max_position_embeddings"],
    )
