"""Export: a checkpoint of a decoder in the Hugging Face layout, as `slipway checkpoints export` writes it.

The checkpoint is verified first. Then its tensors, which any layout of ranks may have written, are read one after the
other, and written to files of limited size with an index. The new folder becomes visible by one rename with every file
in it, and its own manifest holds the hash of each file. An existing folder is an error.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.trainer.base import atomic, digest, parsing, regular_file
from slipway.trainer.checkpoint.disk import publication
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.publication import Blocks
from slipway.trainer.config import resolved
from slipway.trainer.config.shapes import Data
from slipway.trainer.data import vocabulary
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.start import huggingface, weight_files
from slipway.trainer.start.families import table
from slipway.trainer.start.families.entries import Settings, WeightEntry

if TYPE_CHECKING:
    from torch import Tensor

    from slipway.trainer.checkpoint.disk.contents import Contents

LAYOUT = "huggingface/2"
"""Older exports, with a single weight file, have "huggingface.llama/1"; only the verification reads the layout."""
FILE_BYTES = 5_000_000_000
PRECISIONS = ("bf16", "fp32")
_TYPES = {"bf16": "bfloat16", "fp32": "float32"}
"""By precision, the name of an element's type in config.json."""
_NAMES = {"bf16": "BF16", "fp32": "F32"}
"""By precision, the name of an element's type in safetensors."""


def export(
    checkpoint: Path,
    target: Path,
    manifest: str | None = None,
    tokenizer: Path | None = None,
    precision: str = "bf16",
    file_bytes: int = FILE_BYTES,
) -> str:
    """Write the checkpoint in a folder to the new folder `target`; returns the SHA-256 of the new folder's manifest.

    `manifest` is the SHA-256 of the checkpoint's manifest on record, by default that of the manifest in the folder.
    `tokenizer` is by default the one on the checkpoint's durable tier; if there is none, the export has none. A weight
    file is larger than `file_bytes` only if it has a single tensor. The memory is that of one tensor of the export and
    its parts. Raises ValueError if the target exists, if transformers does not have the model, and for the tokenizer of
    another training; DamagedCheckpoint; and OSError.
    """
    from slipway.trainer.checkpoint.disk import contents

    if target.exists():
        raise ValueError(f"{target}: the folder exists already, expected a new one: choose another name")
    if precision not in PRECISIONS:
        raise ValueError(f"precision: found {precision!r}, expected one of {', '.join(PRECISIONS)}")
    if file_bytes <= 0:
        raise ValueError(f"found files of {file_bytes} bytes, expected a number above 0")
    stored = contents.open_verified(checkpoint, manifest or _manifest(checkpoint), "model")
    progress = stored.progress()
    text = _tokenizer(checkpoint, tokenizer, progress.lineage["tokenizer"])
    model = _decoder(progress.config)
    length = progress.config["batch"]["length"]
    vocabulary_size, _ = stored.tensor_type("model/embedding.weight").shape
    end = vocabulary.end_of_document(parsing.value(text)) if text else None
    data = Data(vocabulary=vocabulary_size, length=length)
    settings = huggingface.config_of(model, data, _TYPES[precision], end["id"] if end else None)
    files: dict[str, bytes | Blocks] = {huggingface.CONFIG: atomic.readable_json(settings)}
    files |= _weights(stored, Settings(settings["model_type"], model, data), _NAMES[precision], file_bytes)
    files |= _tokenizer_files(text, end, length) if text and end else {}
    return publication.write(target, LAYOUT, files)


def _weights(stored: "Contents", settings: Settings, dtype: str, file_bytes: int) -> "dict[str, bytes | Blocks]":
    """The weight files of an export by name, generated while they are written, and their index if there are several."""
    parts: dict[str, list[WeightEntry]] = {}
    stored_names = set(stored.tensor_names("model/"))  # a tied decoder has no head of its own
    for entry in table.entries(settings):
        if f"model/{entry.name}" in stored_names:
            parts.setdefault(entry.hf_name, []).append(entry)
    planned = weight_files.plan({name: group[0].stored for name, group in parts.items()}, dtype, file_bytes)
    content = {file.name: file.blocks(dtype, lambda name: _tensor(stored, parts[name], dtype)) for file in planned}
    return {**content, **weight_files.index(planned, dtype)}


def _tensor(stored: "Contents", parts: Sequence[WeightEntry], dtype: str) -> "Tensor":
    """One tensor of the family, composed of ours."""
    import torch

    kind = {"F32": torch.float32, "BF16": torch.bfloat16}[dtype]
    full = torch.empty(parts[0].stored, dtype=kind)
    for entry in parts:
        name = f"model/{entry.name}"
        own_tensor = torch.empty(entry.shape, dtype=stored.tensor_type(name).dtype)
        stored.load({name: own_tensor})
        entry.read(full).copy_(own_tensor)
    return full


def _decoder(config: dict[str, Any]) -> DecoderShape:
    model = resolved.shape(config["model"])
    if not isinstance(model, DecoderShape):
        raise ValueError(f"model.kind: found {model.kind!r}, expected 'decoder', the only kind that can be exported")
    return model


def _tokenizer_files(tokenizer: bytes, end: dict[str, Any], length: int) -> dict[str, bytes]:
    """The tokenizer's files by name, with a token for the end of a document and none for its beginning."""
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": end["content"],
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
    }
    return {
        huggingface.TOKENIZER: tokenizer,
        huggingface.TOKENIZER_CONFIG: atomic.readable_json(config),
        huggingface.GENERATION: atomic.readable_json({"eos_token_id": end["id"]}),
    }


def _manifest(checkpoint: Path) -> str:
    """SHA-256 of the manifest in the checkpoint's folder."""
    try:
        return digest.sha256(regular_file.read(checkpoint / MANIFEST))
    except OSError as error:
        raise ValueError(f"{checkpoint}: expected a checkpoint's folder: {error.strerror}: {MANIFEST}") from None


def _tokenizer(checkpoint: Path, tokenizer_file: Path | None, sha256: str) -> bytes | None:
    """The JSON of the checkpoint's tokenizer. Raises ValueError if `tokenizer_file` is another tokenizer."""
    path = tokenizer_file or checkpoint.resolve().parents[2] / "tokenizers" / f"{sha256}.json"
    if tokenizer_file is None and not path.exists():
        return None
    try:
        data = regular_file.read(path)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    actual = digest.sha256(data)
    if actual != sha256:
        raise ValueError(f"{path}: found SHA-256 {actual[:16]}..., expected the tokenizer of this training, {sha256}")
    return data
