"""Initial weights: those of a checkpoint, or of a model in the Hugging Face layout, identified by a digest.

`check_fit` reads only settings and headers, so that weights that do not fit are refused before anything runs.
`weights` verifies every byte before it deserialises any. The optimiser starts without state: the former state belongs
to another training.
"""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.base import atomic, digest, verify
from trainer.checkpoint.disk import manifest
from trainer.checkpoint.disk.manifest import MANIFEST
from trainer.checkpoint.disk.progress import PROGRESS
from trainer.checkpoint.disk.reading import DamagedCheckpoint
from trainer.checkpoint.disk.tensor_table import TensorTable
from trainer.config import resolved
from trainer.config.sections import Init
from trainer.config.shapes import Shape
from trainer.data.shards import TokenizerRecord
from trainer.models.decoder import DecoderShape
from trainer.node.world import World
from trainer.start import huggingface

if TYPE_CHECKING:
    from torch import Tensor


def digest_of(layout: str, folder: Path) -> str:
    """The digest that identifies the weights in `folder`. Raises ValueError when a file is missing.

    For a checkpoint it is the SHA-256 of the manifest; for the Hugging Face layout, the SHA-256 of the names and BLAKE3
    of the settings and weight files. A file is hashed again only when its size or modification time has changed.
    """
    if layout == "checkpoint":
        return digest.sha256(_manifest(folder))
    paths = [folder / name for name in huggingface.files_of_model(folder)]
    try:
        stats = [path.stat() for path in paths]
    except OSError as error:
        raise ValueError(f"{error.filename}: cannot be read: {error.strerror}") from None
    hashed = [_blake3(path, stat.st_size, stat.st_mtime_ns) for path, stat in zip(paths, stats, strict=True)]
    return _combined({path.name: blake3 for path, blake3 in zip(paths, hashed, strict=True)})


def check_fit(layout: str, folder: Path, model: Shape, tokenizer: TokenizerRecord | None) -> None:
    """Raises ValueError, with every value that does not fit, unless `model`, with this tokenizer, fits the weights."""
    if not isinstance(model, DecoderShape) or tokenizer is None:
        raise ValueError(
            f"model.kind: found {model.kind!r}, expected 'decoder', the only kind that can start from weights"
        )
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
        raise ValueError(f"{folder}: the weights do not fit the training: {'; '.join(faults)}")


def weights(init: Init, folder: Path, model: Shape, tokenizer: TokenizerRecord | None) -> "dict[str, Tensor]":
    """The weights in `folder`, by parameter. Raises ValueError for another digest than that of `init`, or a bad fit."""
    found = _from_checkpoint(init, folder) if init.layout == "checkpoint" else _from_huggingface(init, folder)
    check_fit(init.layout, folder, model, tokenizer)
    return found()


def source(
    init: Init, folder: Path, model: Shape, tokenizer: TokenizerRecord | None, world: World
) -> "Callable[[Mapping[str, Tensor]], None]":
    """A function that reads the weights in `folder` into tensors, by parameter; of each, this rank's part."""
    from trainer.start import placement

    whole = weights(init, folder, model, tokenizer)

    def load(targets: "Mapping[str, Tensor]") -> None:
        for name, target in targets.items():
            local, part = placement.local_part(target)
            local.copy_(placement.cut(whole[name], part))

    return load


def _from_checkpoint(init: Init, folder: Path) -> "Callable[[], dict[str, Tensor]]":
    """A function that reads the verified weights of a checkpoint. Raises ValueError unless `init` has its digest."""
    from trainer.checkpoint.disk import contents

    try:
        found = contents.open_verified(folder, init.digest, "model")
    except DamagedCheckpoint as damage:
        raise ValueError(f"init: {damage}") from None
    return lambda: found.tensors("model")


def _from_huggingface(init: Init, folder: Path) -> "Callable[[], dict[str, Tensor]]":
    """A function that decodes the verified weight files. Raises ValueError unless `init` has their digest."""
    try:
        files = {name: (folder / name).read_bytes() for name in huggingface.files_of_model(folder)}
    except OSError as error:
        raise ValueError(f"init: {error.filename}: cannot be read: {error.strerror}") from None
    found = _combined({name: digest.of_bytes(data) for name, data in files.items()})
    if found != init.digest:
        raise ValueError(f"init: {folder}: found the digest {found[:16]}..., expected {init.digest[:16]}...")
    files.pop(huggingface.CONFIG)
    return lambda: huggingface.decode_weights(files, huggingface.read_settings(folder))


def _checkpoint(folder: Path) -> tuple[Shape, int, str]:
    """A checkpoint's model, the size of its vocabulary and its tokenizer's SHA-256, from its small files."""
    found = manifest.decode(_manifest(folder))
    manifest.require_readable(found.layout, folder)
    try:
        progress: dict[str, Any] = json.loads((folder / PROGRESS).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{folder / PROGRESS}: cannot be read: {error}") from None
    try:
        vocab_size, _ = TensorTable(folder, found).types["model/embedding.weight"].shape
    except (DamagedCheckpoint, OSError) as error:
        raise ValueError(f"init: {error}") from None
    return resolved.shape(progress["config"]["model"]), vocab_size, progress["lineage"]["tokenizer"]


def _manifest(folder: Path) -> bytes:
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise ValueError(f"{folder}: expected a checkpoint's folder: {error.strerror}: {MANIFEST}") from None


def _combined(hashes: Mapping[str, str]) -> str:
    return digest.sha256(atomic.canonical_json(hashes))


@functools.lru_cache(maxsize=4096)
def _blake3(path: Path, size: int, modified: int) -> str:
    return verify.measure(path).blake3
