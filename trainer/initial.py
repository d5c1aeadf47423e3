"""Initial weights: a checkpoint, or a model in the Hugging Face layout, named by a digest of what decides numbers.

`check` reads settings and headers alone, so that weights which do not fit are refused before anything runs;
`weights` verifies every byte before it deserialises one. The optimiser
starts anew: its state belongs to another course.
"""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer import atomic, config, digest, huggingface
from trainer.checkpoint import format, manifest
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
    found = _from_checkpoint(init, folder) if init.layout == "checkpoint" else _from_huggingface(init, folder)
    check(init.layout, folder, model, tokenizer)
    return found()


def _from_checkpoint(init: Init, folder: Path) -> "Callable[[], dict[str, Tensor]]":
    """What reads a checkpoint's weights, once they are verified. Raises ValueError unless they are what `init` says."""
    from trainer.checkpoint import contents

    try:
        found = contents.read(folder, init.digest, "model")
    except format.Damaged as damage:
        raise ValueError(f"init: {damage}") from None
    return lambda: found.tensors("model")


def _from_huggingface(init: Init, folder: Path) -> "Callable[[], dict[str, Tensor]]":
    """What decodes the weight files, once they are verified. Raises ValueError unless they are what `init` says."""
    try:
        files = {name: (folder / name).read_bytes() for name in huggingface.files(folder)}
    except OSError as error:
        raise ValueError(f"init: {error.filename}: cannot be read: {error.strerror}") from None
    found = _combined({name: digest.of_bytes(data) for name, data in files.items()})
    if found != init.digest:
        raise ValueError(f"init: {folder}: found the digest {found[:16]}..., expected {init.digest[:16]}...")
    files.pop(huggingface.CONFIG)
    return lambda: huggingface.decode(files, huggingface.read_settings(folder))


def _checkpoint(folder: Path) -> tuple[Shape, int, str]:
    """A checkpoint's model, the size of its vocabulary and its tokenizer's SHA-256, from what is quick to read."""
    found = manifest.decode(_manifest(folder))
    if found.layout != format.LAYOUT:
        raise ValueError(f"{folder}: found the layout {found.layout!r}, expected {format.LAYOUT!r}")
    try:
        progress: dict[str, Any] = json.loads((folder / format.PROGRESS).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / format.PROGRESS}: cannot be read: {error}") from None
    vocab_size, _ = found.tensors["model/embedding.weight"].shape
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
