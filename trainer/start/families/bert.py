"""BERT with its masked-language-model head, as our encoder.

Ours has no segments, so the row of the first segment is added to each position. It has one more row in the embedding,
its mask, which becomes a copy of the row of `[MASK]`. The weights of BERT's second task, next sentence, are not read.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import parsing, regular_file
from slipway.trainer.config.shapes import Data
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.start.families.entries import Settings, WeightEntry, entries_of_block, only, pair

if TYPE_CHECKING:
    from torch import Tensor

SEGMENTS = "segments"
MASK = "[MASK]"
FURTHER = ("bert.pooler.", "cls.seq_relationship.", "position_ids", "cls.predictions.decoder.")
"""Tensors that are not read; the head's decoder is a second copy of the embedding and the bias."""
_EMBEDDINGS = "bert.embeddings."
_HEAD = "cls.predictions."
_BLOCK = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.out": "attention.output.dense",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
}
_NORMS = {"attention_norm": "attention.output.LayerNorm", "feed_forward_norm": "output.LayerNorm"}


def read(value: Mapping[str, Any]) -> Settings:
    """The settings in a config.json of BERT. Raises ValueError for settings that our encoder does not have."""
    only(value, hidden_act="gelu", layer_norm_eps=1e-12, position_embedding_type="absolute", is_decoder=False)
    only(value, tie_word_embeddings=True)
    model = EncoderShape(
        layers=value["num_hidden_layers"],
        width=value["hidden_size"],
        heads=value["num_attention_heads"],
        hidden=value["intermediate_size"],
    )
    return Settings(
        value["model_type"], model, Data(vocabulary=value["vocab_size"], length=value["max_position_embeddings"])
    )


def entries(settings: Settings) -> list[WeightEntry]:
    """All tensors of a BERT, including the embedding of its segments."""
    model = settings.model
    data = settings.data
    assert isinstance(model, EncoderShape)
    width = model.width
    return [
        WeightEntry("embedding.weight", f"{_EMBEDDINGS}word_embeddings.weight", (data.vocabulary, width)),
        WeightEntry("positions.weight", f"{_EMBEDDINGS}position_embeddings.weight", (data.length, width)),
        WeightEntry(SEGMENTS, f"{_EMBEDDINGS}token_type_embeddings.weight", (1, width), rows=2),
        *pair("embedding_norm", f"{_EMBEDDINGS}LayerNorm", (width,)),
        *(entry for layer in range(model.layers) for entry in _block(model, layer)),
        *pair("transform", f"{_HEAD}transform.dense", (width, width)),
        *pair("transform_norm", f"{_HEAD}transform.LayerNorm", (width,)),
        WeightEntry("bias", f"{_HEAD}bias", (data.vocabulary,)),
    ]


def standard(name: str) -> str:
    """PyTorch's name of a tensor: published files have TensorFlow's names for norms."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def finish(state: dict[str, "Tensor"], folder: Path) -> dict[str, "Tensor"]:
    """Our encoder's state: segments added to the positions, and the mask as the last row of embedding and bias."""
    import torch

    mask = _mask(folder)
    positions = state["positions.weight"] + state[SEGMENTS]
    rows = {name: torch.cat([state[name], state[name][mask : mask + 1]]) for name in ("embedding.weight", "bias")}
    weights = {name: tensor for name, tensor in state.items() if name != SEGMENTS}
    return {**weights, **rows, "positions.weight": positions}


def _mask(folder: Path) -> int:
    """The id of `[MASK]`, from tokenizer.json or vocab.txt. Raises ValueError if neither has it."""
    tokenizer = folder / "tokenizer.json"
    vocabulary = folder / "vocab.txt"
    if tokenizer.exists():
        added = parsing.value(regular_file.read(tokenizer)).get("added_tokens", [])
        mask_ids = [token["id"] for token in added if token["content"] == MASK]
    else:
        vocabulary_lines = vocabulary.read_text().splitlines() if vocabulary.exists() else []
        mask_ids = [vocabulary_lines.index(MASK)] if MASK in vocabulary_lines else []
    if not mask_ids:
        raise ValueError(f"{folder}: found no id of {MASK}, expected it in tokenizer.json or vocab.txt: add that file")
    return int(mask_ids[0])


def _block(model: EncoderShape, layer: int) -> Iterator[WeightEntry]:
    hf_prefix = f"bert.encoder.layer.{layer}."
    return entries_of_block(f"blocks.{layer}.", hf_prefix, model.width, model.hidden, _BLOCK, _NORMS)
