"""Export: a checkpoint in the Hugging Face Llama layout, as `slipway checkpoints export` writes it.

The checkpoint is verified first. The new folder becomes visible by one rename with every file in it, and its own
manifest holds the hash of each file. A folder that exists already is not touched.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.base import atomic, digest
from trainer.checkpoint.disk import publication
from trainer.checkpoint.disk.manifest import MANIFEST
from trainer.data import vocabulary
from trainer.models.decoder import DecoderShape
from trainer.start import huggingface

if TYPE_CHECKING:
    from torch import Tensor

LAYOUT = "huggingface.llama/1"


def export(checkpoint: Path, target: Path, manifest: str | None = None, tokenizer: Path | None = None) -> str:
    """Write the checkpoint in a folder to the new folder `target`; returns the SHA-256 of the new folder's manifest.

    `manifest` is the SHA-256 of the checkpoint's manifest on record, by default that of the manifest in the folder.
    `tokenizer` is by default the one on the durable tier that holds the checkpoint; if there is none, the export has
    none. Raises ValueError for a target that exists and for the tokenizer of another training, DamagedCheckpoint, and
    OSError.
    """
    from trainer.checkpoint.disk import contents

    if target.exists():
        raise ValueError(f"{target}: the folder exists already, expected a new one: choose another name")
    found = contents.open_verified(checkpoint, manifest or _manifest(checkpoint), "model")
    progress = found.progress()
    text = _tokenizer(checkpoint, tokenizer, progress.lineage["tokenizer"])
    return publication.write(target, LAYOUT, _files(found.tensors("model"), progress.config, text))


def _files(weights: "dict[str, Tensor]", config: dict[str, Any], tokenizer: bytes | None) -> dict[str, bytes]:
    """The files of an export, by name."""
    model, length = _decoder(config), config["batch"]["length"]
    vocab_size = weights["embedding.weight"].shape[0]
    end = vocabulary.end_of_document(json.loads(tokenizer)) if tokenizer else None
    settings = huggingface.config_of(model, vocab_size, length, end["id"] if end else None)
    files = {
        huggingface.CONFIG: atomic.readable_json(settings),
        huggingface.WEIGHTS: huggingface.encode_weights(weights, model, vocab_size),
    }
    if tokenizer and end:
        files |= _tokenizer_files(tokenizer, end, length)
    return files


def _decoder(config: dict[str, Any]) -> DecoderShape:
    kind = config["model"].get("kind", "decoder")
    if kind != "decoder":
        raise ValueError(f"model.kind: found {kind!r}, expected 'decoder', the only kind with a Llama layout")
    return DecoderShape(**config["model"])


def _tokenizer_files(tokenizer: bytes, end: dict[str, Any], length: int) -> dict[str, bytes]:
    """The tokenizer's files by name. There is a token for the end of a document, and none for its beginning."""
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
        return digest.sha256((checkpoint / MANIFEST).read_bytes())
    except OSError as error:
        raise ValueError(f"{checkpoint}: expected a checkpoint's folder: {error.strerror}: {MANIFEST}") from None


def _tokenizer(checkpoint: Path, given: Path | None, sha256: str) -> bytes | None:
    """The JSON of the tokenizer that the checkpoint was trained with. Raises ValueError when `given` is another."""
    path = given or checkpoint.resolve().parents[2] / "tokenizers" / f"{sha256}.json"
    if given is None and not path.exists():
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from None
    found = digest.sha256(data)
    if found != sha256:
        raise ValueError(f"{path}: found SHA-256 {found[:16]}..., expected the tokenizer of this training, {sha256}")
    return data
