"""The families by their `model_type` in config.json."""

from collections.abc import Mapping
from typing import Any

from slipway.trainer.config.shapes import Data
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.start.families import bert, gpt2, llama, vit
from slipway.trainer.start.families.entries import Family, Settings, WeightEntry

FAMILIES: Mapping[str, Family] = {
    **{kind: Family(llama.read, llama.entries, further=llama.FURTHER) for kind in llama.ARCHITECTURES},
    "gpt2": Family(gpt2.read, gpt2.entries, gpt2.standard, gpt2.FURTHER),
    "bert": Family(bert.read, bert.entries, bert.standard, bert.FURTHER, bert.finish),
    "vit": Family(vit.read, vit.entries, further=vit.FURTHER),
}


def named(kind: object) -> Family:
    """The family of this `model_type`. Raises ValueError for one that we do not read."""
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(f"model_type: found {kind!r}, expected one of {', '.join(FAMILIES)}, which our models can be")
    return FAMILIES[kind]


def config(model: DecoderShape, data: Data) -> dict[str, Any]:
    """The settings of a decoder that its own family has. Raises ValueError for a decoder that none can be."""
    llamas = (model.positions, model.norm, model.activation) == ("rotary", "rms", "swiglu")
    return llama.config(model, data) if llamas else gpt2.config(model, data)


def entries(settings: Settings) -> list[WeightEntry]:
    """All tensors of a model, and where they lie in the files of its family."""
    return named(settings.kind).entries(settings)
