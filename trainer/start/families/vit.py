"""ViT with its head for classes, as a vision transformer of ours; both see pixels from -1 to 1."""

from collections.abc import Iterator, Mapping
from typing import Any

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.vit import VisionShape
from slipway.trainer.start.families.entries import Settings, WeightEntry, entries_of_block, only, pair

FURTHER = ("vit.pooler.",)
_EMBEDDINGS = "vit.embeddings."
_BLOCK = {
    "attention.query": "attention.attention.query",
    "attention.key": "attention.attention.key",
    "attention.value": "attention.attention.value",
    "attention.out": "attention.output.dense",
    "feed_forward.up": "intermediate.dense",
    "feed_forward.down": "output.dense",
}
_NORMS = {"attention_norm": "layernorm_before", "feed_forward_norm": "layernorm_after"}


def read(value: Mapping[str, Any]) -> Settings:
    """The settings in a config.json of ViT. Raises ValueError for what our vision transformer does not have."""
    only(value, hidden_act="gelu", qkv_bias=True)
    model = VisionShape(
        layers=value["num_hidden_layers"],
        width=value["hidden_size"],
        heads=value["num_attention_heads"],
        hidden=value["intermediate_size"],
        patch=value["patch_size"],
        norm_epsilon=float(value["layer_norm_eps"]),
    )
    size = value["image_size"]
    classes = len(value.get("id2label") or (0, 1))
    height, width = size if isinstance(size, list) else (size, size)
    return Settings(
        value["model_type"], model, Data(picture=(height, width, value.get("num_channels", 3)), classes=classes)
    )


def entries(settings: Settings) -> list[WeightEntry]:
    """All tensors of a ViT."""
    model = settings.model
    data = settings.data
    assert isinstance(model, VisionShape)
    height, across, channels = data.picture
    width = model.width
    patches = (height // model.patch) * (across // model.patch)
    projection = (width, channels, model.patch, model.patch)
    return [
        WeightEntry("token", f"{_EMBEDDINGS}cls_token", (1, 1, width)),
        WeightEntry("positions", f"{_EMBEDDINGS}position_embeddings", (1, 1 + patches, width)),
        *pair("patches", f"{_EMBEDDINGS}patch_embeddings.projection", projection),
        *(entry for layer in range(model.layers) for entry in _block(model, layer)),
        *pair("norm", "vit.layernorm", (width,)),
        *pair("head", "classifier", (data.classes, width)),
    ]


def _block(model: VisionShape, layer: int) -> Iterator[WeightEntry]:
    there = f"vit.encoder.layer.{layer}."
    return entries_of_block(f"blocks.{layer}.", there, model.width, model.hidden, _BLOCK, _NORMS)
