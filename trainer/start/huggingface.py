"""The Hugging Face Llama layout: the names, shapes and settings of `LlamaForCausalLM`, from and to our decoder's.

Both models rotate the pairs (i, i + features / 2) of a head, so no row of a weight moves: the layouts differ only in
names. Settings that our decoder does not have are refused by name.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.models.decoder import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
GENERATION, TOKENIZER, TOKENIZER_CONFIG = "generation_config.json", "tokenizer.json", "tokenizer_config.json"
NORM_EPSILON = 1e-5
"""The epsilon of our decoder's RMSNorm."""
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"

_BLOCK = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}
_FIXED = {"model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False}
"""Settings for which our decoder has a single value, which is also the default of a file without them."""


@dataclass(frozen=True)
class WeightEntry:
    """One tensor with its name in our decoder and its name in the Llama layout."""

    ours: str
    theirs: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class LlamaSettings:
    """The settings of a model in config.json."""

    model: DecoderShape
    vocab_size: int
    tied: bool
    """Whether one matrix is the embedding and also the head."""


def weight_entries(model: DecoderShape, vocab_size: int, tied: bool = False) -> list[WeightEntry]:
    """All tensors of a decoder of this size; if they are tied, the head is stored under the name of the embedding."""
    width, keys = model.width, model.kv_heads * (model.width // model.heads)
    square, narrow, wide = (width, width), (keys, width), (model.hidden, width)
    shapes = [(width,), square, narrow, narrow, square, (width,), wide, wide, wide[::-1]]
    blocks = [
        WeightEntry(f"blocks.{layer}.{ours}.weight", f"model.layers.{layer}.{theirs}.weight", shape)
        for layer in range(model.layers)
        for (ours, theirs), shape in zip(_BLOCK.items(), shapes, strict=True)
    ]
    return [
        WeightEntry("embedding.weight", EMBEDDING, (vocab_size, width)),
        *blocks,
        WeightEntry("norm.weight", "model.norm.weight", (width,)),
        WeightEntry("head.weight", EMBEDDING if tied else HEAD, (vocab_size, width)),
    ]


def config_of(model: DecoderShape, vocab_size: int, length: int, end_of_document: int | None) -> dict[str, Any]:
    """The value of config.json; `length` is the longest sequence of the training, in tokens."""
    return {
        **_FIXED,
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": model.layers,
        "hidden_size": model.width,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.width // model.heads,
        "intermediate_size": model.hidden,
        "vocab_size": vocab_size,
        "max_position_embeddings": length,
        "rms_norm_eps": NORM_EPSILON,
        # transformers reads the second from version 5 on, other readers and versions the first.
        "rope_theta": model.rope_base,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_base},
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        # Without these two keys, readers take the ids 1 and 2.
        "bos_token_id": None,
        "eos_token_id": end_of_document,
    }


def read_settings(folder: Path) -> LlamaSettings:
    """The settings of the model in `folder`.

    Raises ValueError when there is no model, and for settings that our decoder does not have.
    """
    path = folder / CONFIG
    try:
        return _settings(json.loads(path.read_bytes()))
    except FileNotFoundError:
        raise ValueError(f"{folder}: found no {CONFIG}, expected a model in the Hugging Face layout") from None
    except KeyError as error:
        raise ValueError(f"{path}: found no {error.args[0]}, expected the settings of a Llama model") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def files_of_model(folder: Path) -> list[str]:
    """The names of the settings and weight files. Raises ValueError when there are no weights."""
    return [CONFIG, *weight_files(folder)]


def weight_files(folder: Path) -> list[str]:
    """The names of the weight files: one, or those that the index lists. Raises ValueError when there is neither."""
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    try:
        index = json.loads((folder / INDEX).read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{folder}: found neither {WEIGHTS} nor {INDEX}, expected one of them") from None
    return sorted({Path(name).name for name in index["weight_map"].values()})


def shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of the model in `folder`, from the headers of its files."""
    return {name: shape for file in weight_files(folder) for name, shape in _shapes_of_file(folder / file).items()}


def _shapes_of_file(path: Path) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor in a safetensors file, from its header. Raises ValueError for any other file."""
    import safetensors

    try:
        with safetensors.safe_open(path, "np") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except (OSError, safetensors.SafetensorError) as error:
        raise ValueError(f"{path}: expected a safetensors file: {error}") from None


def encode_weights(state: Mapping[str, "Tensor"], model: DecoderShape, vocab_size: int) -> bytes:
    """The bytes of the weights file of a decoder's state, in the precision of the state."""
    import safetensors.torch

    renamed = {entry.theirs: state[entry.ours].contiguous() for entry in weight_entries(model, vocab_size)}
    data: bytes = safetensors.torch.save(renamed, metadata={"format": "pt"})
    return data


def decode_weights(contents: Mapping[str, bytes], settings: LlamaSettings) -> dict[str, "Tensor"]:
    """A decoder's state in fp32, from the contents of its weight files. Tied embeddings become two equal matrices.

    Raises ValueError for files that are no safetensors, and for tensors that do not fit the settings.
    """
    import safetensors.torch

    found: dict[str, Tensor] = {}
    for name, data in contents.items():
        try:
            found |= safetensors.torch.load(data)
        except safetensors.SafetensorError as error:
            raise ValueError(f"{name}: expected a safetensors file: {error}") from None
    check_shapes({name: tuple(tensor.shape) for name, tensor in found.items()}, settings)
    wanted = weight_entries(settings.model, settings.vocab_size, settings.tied)
    return {entry.ours: found[entry.theirs].float() for entry in wanted}


def check_shapes(found: Mapping[str, tuple[int, ...]], settings: LlamaSettings) -> None:
    """Raises ValueError for the first tensor that is missing, has another shape, or is not part of our decoder."""
    wanted = weight_entries(settings.model, settings.vocab_size, settings.tied)
    for entry in wanted:
        if entry.theirs not in found:
            raise ValueError(f"{entry.theirs}: found no such tensor, expected one of {list(entry.shape)}")
        if found[entry.theirs] != entry.shape:
            raise ValueError(f"{entry.theirs}: found {list(found[entry.theirs])}, expected {list(entry.shape)}")
    known = {HEAD, *(entry.theirs for entry in wanted)}
    for name in found:
        # Old files also hold the rotary frequencies, which follow from the settings.
        if name not in known and not name.endswith("rotary_emb.inv_freq"):
            raise ValueError(f"{name}: found a tensor that our decoder does not have")


def _settings(value: dict[str, Any]) -> LlamaSettings:
    for name, wanted in _FIXED.items():
        if value.get(name, wanted) != wanted:
            raise ValueError(f"{name}: found {value[name]!r}, expected {wanted!r}, the only value of our decoder")
    if not math.isclose(value["rms_norm_eps"], NORM_EPSILON):
        raise ValueError(f"rms_norm_eps: found {value['rms_norm_eps']}, expected {NORM_EPSILON}, our decoder's")
    model = DecoderShape(
        layers=value["num_hidden_layers"],
        width=value["hidden_size"],
        heads=value["num_attention_heads"],
        kv_heads=value.get("num_key_value_heads") or value["num_attention_heads"],
        hidden=value["intermediate_size"],
        rope_base=_rope_base(value),
    )
    features = value.get("head_dim") or model.width // model.heads
    if features * model.heads != model.width:
        raise ValueError(f"head_dim: found {features}, expected {model.width // model.heads} (width / heads)")
    return LlamaSettings(model, value["vocab_size"], tied=value.get("tie_word_embeddings", False))


def _rope_base(value: dict[str, Any]) -> float:
    rope = value.get("rope_parameters") or value.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rope_type: found {kind!r}, expected 'default', the only value of our decoder")
    return float(rope.get("rope_theta", value.get("rope_theta", 10_000.0)))
