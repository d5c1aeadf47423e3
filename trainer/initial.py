"""Initial weights: a checkpoint, or a model in the Hugging Face layout, named by a digest of what decides numbers.

`check` reads settings and headers alone, so that weights which do not fit are refused before anything runs;
`weights` verifies every byte before it deserialises one. The optimiser
starts anew: its state belongs to another course.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import atomic, config, digest, huggingface
from trainer.checkpoint import format
from trainer.sections import Init
from trainer.shapes import DecoderShape, Shape
from trainer.shards import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor


def digest_of(layout: str, folder: Path) -> str:
    """What identifies the weights in `folder`: the SHA-256 of a checkpoint's manifest, or, for the Hugging Face
    layout, that of the BLAKE3 of its settings and weight files by name. Raises ValueError when they are not there.

    A file is hashed again only when its size or its time has changed.
    """
    if layout == "checkpoint":
        return digest.sha256(_manifest(folder))
    paths = [folder / name for name in huggingface.files(folder)]
    try:
        stats = [path.stat() for path in paths]
    except OSError as error:
        raise ValueError(f"{error.filename}: cannot be read: {error.strerror}") from None
    hashed = [_blake3(path, stat.st_size, stat.st_mtime_ns) for path, stat in zip(paths, stats, strict=True)]
    return _combined({path.name: blake3 for path, blake3 in zip(paths, hashed, strict=True)})


def check(layout: str, folder: Path, model: Shape, tokenizer: Tokenizer | None) -> None:
    """Raises ValueError, with all the numbers that do not fit, unless a `model` for this tokenizer can start there."""
    if not isinstance(model, DecoderShape) or tokenizer is None:
        raise ValueError(f"model.kind: found {model.kind!r}, expected 'decoder', the one that can start from weights")
    if layout == "checkpoint":
        found, vocab_size, sha256 = _checkpoint(folder)
    else:
        settings = huggingface.read_settings(folder)
        huggingface.check_shapes(huggingface.shapes(folder), settings)
        found, vocab_size, sha256 = settings.model, settings.vocab_size, tokenizer.sha256
    there, wanted = asdict(found), asdict(model)
    faults = [
        f"model.{name}: found {there.get(name)}, expected {wanted.get(name)}"
        for name in there | wanted
        if there.get(name) != wanted.get(name)
    ]
    if vocab_size != tokenizer.vocab_size:
        faults.append(f"vocabulary: found {vocab_size} tokens, expected {tokenizer.vocab_size}, the snapshot's")
    elif sha256 != tokenizer.sha256:
        faults.append(f"tokenizer: found {sha256[:16]}..., expected {tokenizer.sha256[:16]}..., the snapshot's")
    if faults:
        raise ValueError(f"{folder}: its weights do not fit: {'; '.join(faults)}")


def weights(init: Init, folder: Path, model: Shape, tokenizer: Tokenizer | None) -> "dict[str, Tensor]":
    """The weights in `folder` by parameter. Raises ValueError when they are not what `init` says or do not fit."""
    files = _verified(init, folder)
    check(init.layout, folder, model, tokenizer)
    return _state(init.layout, files, folder)


def _verified(init: Init, folder: Path) -> dict[str, bytes]:
    """The contents of the weight files. Raises ValueError unless they are what `init` says."""
    if init.layout == "checkpoint":
        try:
            return format.read(folder, init.digest, (format.MODEL, format.PROGRESS))
        except format.Damaged as damage:
            raise ValueError(f"init: {damage}") from None
    try:
        files = {name: (folder / name).read_bytes() for name in huggingface.files(folder)}
    except OSError as error:
        raise ValueError(f"init: {error.filename}: cannot be read: {error.strerror}") from None
    found = _combined({name: digest.of_bytes(data) for name, data in files.items()})
    if found != init.digest:
        raise ValueError(f"init: {folder}: found the digest {found[:16]}..., expected {init.digest[:16]}...")
    return files


def _state(layout: str, files: Mapping[str, bytes], folder: Path) -> "dict[str, Tensor]":
    import safetensors.torch

    if layout == "checkpoint":
        state: dict[str, Tensor] = safetensors.torch.load(files[format.MODEL])
        return state
    weights = {name: data for name, data in files.items() if name != huggingface.CONFIG}
    return huggingface.decode(weights, huggingface.read_settings(folder))


def _checkpoint(folder: Path) -> tuple[Shape, int, str]:
    """A checkpoint's model, the size of its vocabulary and its tokenizer's SHA-256, from what is quick to read."""
    manifest = json.loads(_manifest(folder))
    if manifest.get("layout") != format.LAYOUT:
        raise ValueError(f"{folder}: found the layout {manifest.get('layout')!r}, expected {format.LAYOUT!r}")
    try:
        progress: dict[str, Any] = json.loads((folder / format.PROGRESS).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / format.PROGRESS}: cannot be read: {error}") from None
    vocab_size, _ = huggingface.shapes_of(folder / format.MODEL)["embedding.weight"]
    return config.shape(progress["config"]["model"]), vocab_size, progress["lineage"]["tokenizer"]


def _manifest(folder: Path) -> bytes:
    try:
        return (folder / format.MANIFEST).read_bytes()
    except OSError as error:
        raise ValueError(f"{folder}: expected a checkpoint's folder: {error.strerror}: {format.MANIFEST}") from None


def _combined(hashes: Mapping[str, str]) -> str:
    return digest.sha256(atomic.canonical_json(hashes))


@functools.lru_cache(maxsize=4096)
def _blake3(path: Path, size: int, modified: int) -> str:
    return digest.of_file(path)
