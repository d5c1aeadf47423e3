"""Small exported models of the tests: real files in the Hugging Face layout, with random weights."""

import json
from pathlib import Path

import torch
from safetensors.torch import save

from slipway.serving.records import ServedVersion
from slipway.trainer.base import atomic, digest
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.config.shapes import Data
from slipway.trainer.data.vocabulary import END_OF_DOCUMENT
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.start import huggingface
from slipway.trainer.start.export import LAYOUT
from slipway.trainer.start.families import table
from slipway.trainer.start.families.entries import Settings

SMALL = DecoderShape(layers=2, width=32, heads=4, kv_heads=2, hidden=64)
LENGTH = 128


def tokenizer() -> bytes:
    """A token for each byte, and one for the end of a document."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    byte_tokenizer = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    byte_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    byte_tokenizer.decoder = decoders.ByteLevel()
    byte_tokenizer.add_special_tokens([AddedToken(END_OF_DOCUMENT, special=True)])
    return str(byte_tokenizer.to_str()).encode()


def files(seed: int, shape: DecoderShape = SMALL, length: int = LENGTH) -> dict[str, bytes]:
    """The files of a model whose weights follow from the seed; equal seeds give equal models."""
    data = Data(vocabulary=257, length=length)
    settings = huggingface.config_of(shape, data, "float32", 256)
    numbers = torch.Generator().manual_seed(seed)
    stored = {entry.hf_name: entry.stored for entry in table.entries(Settings(settings["model_type"], shape, data))}
    weights = {name: torch.randn(shape, generator=numbers) * 0.08 for name, shape in stored.items()}
    return {
        huggingface.CONFIG: atomic.readable_json(settings),
        huggingface.WEIGHTS: save(weights, {"format": "pt"}),
        huggingface.TOKENIZER: tokenizer(),
        huggingface.TOKENIZER_CONFIG: atomic.readable_json({"eos_token": END_OF_DOCUMENT}),
        huggingface.GENERATION: json.dumps({"eos_token_id": 256}).encode(),
    }


def exported(
    durable: Path, number: int, without: str = "", shape: DecoderShape = SMALL, length: int = LENGTH
) -> ServedVersion:
    """Version `number` of a model, exported below `durable`; its number is the seed of its weights."""
    folder = f"exports/{number}{without}"
    content = {name: data for name, data in files(number, shape, length).items() if name != without}
    manifest = publication.write(durable / folder, LAYOUT, content)
    return ServedVersion(str(number), digest.sha256(f"{number}{without}".encode()), folder, manifest)
