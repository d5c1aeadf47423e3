"""Export: ``python -m trainer.export CHECKPOINT --to FOLDER`` writes a checkpoint in the Hugging Face Llama layout.

The checkpoint is verified first. The folder appears by one rename with everything in it, and with a manifest of
its own that holds the hash of every file; nothing that is there already is touched.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import atomic, digest, huggingface, vocabulary
from trainer.checkpoint import format
from trainer.shapes import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

LAYOUT = "huggingface.llama/1"


def export(checkpoint: Path, target: Path, manifest: str | None = None, tokenizer: Path | None = None) -> str:
    """Write `checkpoint` to the new folder `target`; returns the SHA-256 of the folder's manifest.

    `manifest` is the checkpoint's SHA-256 on record, by default whatever its manifest has. `tokenizer` is by default
    the one of the durable tier that the checkpoint lies in; without any, the export has none. Raises ValueError for
    a target that is there and a tokenizer of another training, format.Damaged, and OSError (a full disk, say).
    """
    from trainer.checkpoint import contents

    if target.exists():
        raise ValueError(f"{target}: is there already, expected a new folder")
    found = contents.read(checkpoint, manifest or _manifest(checkpoint), "model")
    progress = found.progress()
    text = _tokenizer(checkpoint, tokenizer, progress.lineage["tokenizer"])
    return format.write(target, LAYOUT, _files(found.tensors("model"), progress.config, text))


def _files(weights: "dict[str, Tensor]", config: dict[str, Any], tokenizer: bytes | None) -> dict[str, bytes]:
    """The files of an export, by name."""
    model, length = _decoder(config), config["batch"]["length"]
    vocab_size = weights["embedding.weight"].shape[0]
    end = vocabulary.end_of_document(json.loads(tokenizer)) if tokenizer else None
    settings = huggingface.settings(model, vocab_size, length, end["id"] if end else None)
    files = {
        huggingface.CONFIG: atomic.readable_json(settings),
        huggingface.WEIGHTS: huggingface.export(weights, model, vocab_size),
    }
    if tokenizer and end:
        files |= _tokenizer_files(tokenizer, end, length)
    return files


def _decoder(config: dict[str, Any]) -> DecoderShape:
    kind = config["model"].get("kind", "decoder")
    if kind != "decoder":
        raise ValueError(f"model.kind: found {kind!r}, expected 'decoder': only for it there is a Llama layout")
    return DecoderShape(**config["model"])


def _tokenizer_files(tokenizer: bytes, end: dict[str, Any], length: int) -> dict[str, bytes]:
    """No token begins a document: our documents only end."""
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
    """SHA-256 of the manifest as it lies there."""
    try:
        return digest.sha256((checkpoint / format.MANIFEST).read_bytes())
    except OSError as error:
        raise ValueError(f"{checkpoint}: expected a checkpoint's folder: {error.strerror}: {format.MANIFEST}") from None


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


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.export", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="the checkpoint's folder")
    parser.add_argument("--to", type=Path, required=True, help="the folder to make")
    parser.add_argument("--manifest", help="SHA-256 of the checkpoint's manifest, as its commit has it")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, by default the one in the durable tier")
    given = parser.parse_args(arguments)
    try:
        manifest = export(given.checkpoint, given.to, given.manifest, given.tokenizer)
    except (ValueError, OSError, format.Damaged) as error:
        print(f"export: {error}", file=sys.stderr)
        return 1
    files = sorted(path.name for path in given.to.iterdir())
    print(json.dumps({"to": str(given.to), "manifest": manifest, "files": files}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
