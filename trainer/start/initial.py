"""Initial weights: loaded from a checkpoint or a model in the Hugging Face layout, which a digest identifies; or drawn.

`check_fit` reads only settings and headers, so weights that do not fit are rejected before anything runs. `source`
verifies every byte, and then reads each rank's part of the model, tensor by tensor. The optimiser starts without state,
because a former state belongs to another training. `initialize_weights` begins a training that has no checkpoint.
"""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from slipway.trainer.base import atomic, digest, parsing, regular_file, verify
from slipway.trainer.checkpoint.disk import manifest
from slipway.trainer.checkpoint.disk.manifest import MANIFEST
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.tensor_table import TensorTable
from slipway.trainer.config import resolved
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Init
from slipway.trainer.config.shapes import Data, Shape
from slipway.trainer.data import contents
from slipway.trainer.data.shards import TokenizerRecord
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.encoder import EncoderShape
from slipway.trainer.record.causes import LackingTier
from slipway.trainer.start import huggingface

if TYPE_CHECKING:
    from torch import Tensor

    from slipway.trainer.loading.feed import Feed
    from slipway.trainer.node.world import World

WeightSource = Callable[[Mapping[str, "Tensor"]], None]
"""Reads weights into the given tensors, by name, plain or DTensors: of each, this rank's part."""
TRAINING_ALONE = frozenset({"masked", "augment", "attention"})
"""The fields of shapes that affect the training but not the weights."""


def digest_of(layout: str, folder: Path) -> str:
    """The digest that identifies the weights in `folder`. Raises ValueError if a file is missing.

    For a checkpoint it is the SHA-256 of the manifest; for the Hugging Face layout, the SHA-256 of the names and BLAKE3
    of the settings and weight files. A file is hashed again only if its size or modification time has changed.
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


def check_fit(
    layout: str, folder: Path, model: Shape, tokenizer: TokenizerRecord | None, data: Data | None = None
) -> None:
    """Raises ValueError, with every value that does not fit, unless `model` and the tokenizer fit the weights.

    A model of pictures has no tokenizer; `data` has their size and the number of classes, or the longest sequence.
    """
    expected = data or Data()
    if tokenizer is not None:
        expected = replace(expected, vocabulary=tokenizer.vocab_size)
    if layout == "checkpoint":
        stored_model, stored_data, sha256 = _checkpoint(folder, model)
    else:
        settings = huggingface.read_settings(folder)
        huggingface.StoredWeights(folder, settings).check()
        stored_model = settings.model
        stored_data = settings.data
        sha256 = tokenizer.sha256 if tokenizer else ""
        if isinstance(model, DecoderShape) and isinstance(stored_model, DecoderShape) and stored_model.tied:
            stored_model = replace(stored_model, tied=model.tied)  # one matrix of a file may become two
    faults = [*_shape_faults(stored_model, model), *_data_faults(stored_data, expected)]
    if isinstance(model, EncoderShape) and expected.length > stored_data.length:
        faults.append(
            f"positions: found {stored_data.length}, expected {expected.length} or more, the tokens of batch.length"
        )
    if tokenizer and sha256 != tokenizer.sha256 and stored_data.vocabulary == tokenizer.vocab_size:
        faults.append(f"tokenizer: found {sha256[:16]}..., expected {tokenizer.sha256[:16]}..., the snapshot's")
    if faults:
        raise ValueError(f"{folder}: the weights do not fit the training: {'; '.join(faults)}")


def source(
    init: Init, folder: Path, model: Shape, tokenizer: TokenizerRecord | None, data: Data | None, world: "World"
) -> "WeightSource":
    """The source of the weights in `folder`; all ranks call it at the same time.

    The ranks divide the files between them, and verify every byte before any of them reads a tensor. Raises ValueError,
    on all ranks, if the digest is not that of `init`, or if the weights do not fit; LackingTier if they cannot be read
    now.
    """
    _check_digest(init, folder, world)
    check_fit(init.layout, folder, model, tokenizer, data)
    if init.layout == "huggingface":
        return lambda targets: _read_huggingface(folder, targets)
    from slipway.trainer.checkpoint.disk.contents import open_unverified

    checkpoint = open_unverified(folder, init.digest)
    share = world.rank / world.size
    return lambda targets: checkpoint.load({f"model/{name}": target for name, target in targets.items()}, share)


class WeightInitializable(Protocol):
    """The part of `slipway.trainer.step.engine.Engine` that takes the first weights."""

    def draw_weights(self) -> int: ...

    def load_weights(self, source: WeightSource) -> None: ...


def initialize_weights(
    engine: WeightInitializable, config: Config, feed: "Feed", world: "World", record: Callable[..., None]
) -> bool:
    """Load or draw the first weights; returns whether they were loaded. `record` writes to the ledger."""
    begun = time.time()
    if config.init is None:
        elements = engine.draw_weights()
        record("drawn", elements=elements, seconds=time.time() - begun)
        return False
    folder = Path(config.placement.init)
    tokenizer = contents.tokenizer(feed.snapshot)
    engine.load_weights(source(config.init, folder, config.model, tokenizer, feed.data, world))
    record("initialized", digest=config.init.digest, folder=str(folder), seconds=time.time() - begun)
    return True


def _shape_faults(stored: Shape, expected: Shape) -> list[str]:
    """The fields in which two shapes differ, without `TRAINING_ALONE`."""
    stored_fields = asdict(stored)
    expected_fields = asdict(expected)
    if stored_fields["kind"] != expected_fields["kind"]:
        return [f"model.kind: found {stored_fields['kind']}, expected {expected_fields['kind']}"]
    return [
        f"model.{name}: found {value}, expected {expected_fields[name]}"
        for name, value in stored_fields.items()
        if value != expected_fields[name] and name not in TRAINING_ALONE
    ]


def _data_faults(stored: Data, expected: Data) -> list[str]:
    """The sizes of the data that differ from those of the weights."""
    faults = []
    if expected.vocabulary and stored.vocabulary != expected.vocabulary:
        faults.append(f"vocabulary: found {stored.vocabulary} tokens, expected {expected.vocabulary}, the snapshot's")
    if any(expected.picture) and stored.picture != expected.picture:
        sizes = [" x ".join(map(str, data.picture)) for data in (stored, expected)]
        faults.append(f"pictures: found {sizes[0]}, expected {sizes[1]}, the snapshot's")
    if expected.classes and stored.classes != expected.classes:
        faults.append(f"classes: found {stored.classes}, expected {expected.classes}, the snapshot's")
    return faults


def _check_digest(init: Init, folder: Path, world: "World") -> None:
    """Raises ValueError, on all ranks, unless the bytes in `folder` have the digest of `init`.

    Raises LackingTier if they cannot be read: the same start may succeed later.
    """
    check = _check_checkpoint if init.layout == "checkpoint" else _check_huggingface
    fault: ValueError | None = None
    hashed: dict[str, str] = {}
    try:
        hashed = check(init, folder, world)
    except LackingTier as error:
        fault = LackingTier(f"init: {error}")
    except (DamagedCheckpoint, ValueError) as error:
        fault = ValueError(f"init: {error}")
    except OSError as error:
        fault = LackingTier(f"init: {error.filename}: cannot be read: {error.strerror}")
    gathered = world.all_gather((fault, hashed))
    for failure, _ in gathered:
        if failure is not None:
            raise failure
    if init.layout == "huggingface":
        actual = _combined({name: blake3 for result in gathered for name, blake3 in result[1].items()})
        if actual != init.digest:
            raise ValueError(f"init: {folder}: found the digest {actual[:16]}..., expected {init.digest[:16]}...")


def _check_checkpoint(init: Init, folder: Path, world: "World") -> dict[str, str]:
    """Verify this rank's share of the files that hold the weights of a checkpoint. Raises DamagedCheckpoint."""
    from slipway.trainer.checkpoint.disk.contents import open_unverified

    checkpoint = open_unverified(folder, init.digest)
    checkpoint.verify(sorted({*checkpoint.files_of("model"), PROGRESS})[world.rank :: world.size])
    return {}


def _check_huggingface(_: Init, folder: Path, world: "World") -> dict[str, str]:
    """The BLAKE3 of each file in this rank's share. Raises OSError."""
    names = huggingface.files_of_model(folder)[world.rank :: world.size]
    return {name: verify.measure(folder / name).blake3 for name in names}


def _read_huggingface(folder: Path, targets: "Mapping[str, Tensor]") -> None:
    """Read this rank's part of each target from a model in the Hugging Face layout."""
    from slipway.trainer.start import divided

    stored = huggingface.StoredWeights(folder, huggingface.read_settings(folder))
    entries = {entry.name: entry for entry in stored.entries}
    full_state = stored.state() if stored.is_computed else {}
    for name, target in targets.items():
        local, part = divided.local_part(target)
        if full_state:
            local.copy_(divided.cut(full_state[name], part))
        elif local.numel():
            local.copy_(stored.read(entries[name], part.offsets, part.sizes))


def _checkpoint(folder: Path, expected: Shape) -> tuple[Shape, Data, str]:
    """A checkpoint's model, the sizes of its data, and its tokenizer's SHA-256, from its small files."""
    stored_manifest = manifest.decode(_manifest(folder))
    manifest.require_readable(stored_manifest.layout, folder)
    if not isinstance(expected, DecoderShape):
        raise ValueError(
            f"model.kind: found {expected.kind!r}, expected 'decoder', the only kind that can start from a checkpoint"
        )
    try:
        progress: dict[str, Any] = parsing.value(regular_file.read(folder / PROGRESS))
    except OSError as error:
        raise LackingTier(f"{folder / PROGRESS}: cannot be read: {error}") from None
    except ValueError as error:
        raise ValueError(f"{folder / PROGRESS}: cannot be read: {error}") from None
    try:
        vocabulary, _ = TensorTable(folder, stored_manifest).types["model/embedding.weight"].shape
    except OSError as error:
        raise LackingTier(f"init: {error}") from None
    except DamagedCheckpoint as error:
        raise ValueError(f"init: {error}") from None
    return resolved.shape(progress["config"]["model"]), Data(vocabulary=vocabulary), progress["lineage"]["tokenizer"]


def _manifest(folder: Path) -> bytes:
    try:
        return regular_file.read(folder / MANIFEST)
    except OSError as error:
        raise LackingTier(f"{folder}: expected a checkpoint's folder: {error.strerror}: {MANIFEST}") from None


def _combined(hashes: Mapping[str, str]) -> str:
    return digest.sha256(atomic.canonical_json(hashes))


@functools.lru_cache(maxsize=4096)
def _blake3(path: Path, size: int, modified: int) -> str:
    return verify.measure(path).blake3
