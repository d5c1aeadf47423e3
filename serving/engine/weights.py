"""Weights for inference: first verified, then read tensor by tensor, and fused where one product is enough.

Queries, keys and values are one matrix, and so are gate and up. The features of each head are reordered into pairs (i,
i + features / 2), so that a rotation is one product of complex numbers. Products of queries and keys do not depend on
the order of the features.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from slipway.trainer.checkpoint.disk.verification import read_manifest, verify_file
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.start.huggingface import TOKENIZER, StoredWeights, read_settings


class Refused(ValueError):
    """A model that must not be served; the message says why."""


@dataclass(frozen=True)
class Linear:
    """A matrix, [outputs, inputs], and its optional bias."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class Norm:
    """The weight of a norm, and the bias of a LayerNorm."""

    weight: Tensor
    bias: Tensor | None = None


@dataclass(frozen=True)
class BlockWeights:
    """One block. With `gated`, `up` stacks the gate and up matrices; otherwise it is the matrix of a GELU block."""

    attention_norm: Norm
    fused: Linear
    """Queries, keys and values: [(heads + 2 kv_heads) * features, width]."""
    out: Linear
    feed_forward_norm: Norm
    up: Linear
    down: Linear
    query_norm: Tensor | None
    key_norm: Tensor | None


@dataclass(frozen=True)
class DecoderWeights:
    """All weights of a decoder, on one device."""

    shape: DecoderShape
    vocabulary: int
    length: int
    """The longest sequence, in tokens, that the model was trained for."""
    embedding: Tensor
    positions: Tensor | None
    blocks: tuple[BlockWeights, ...]
    norm: Norm
    head: Tensor

    @property
    def bytes(self) -> int:
        """The memory of all tensors in bytes; a tied head counts once."""
        sizes = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in self._tensors()}
        return sum(sizes.values())

    def _tensors(self) -> list[Tensor]:
        blocks = [tensor for block in self.blocks for part in vars(block).values() for tensor in _of(part)]
        return [self.embedding, *_of(self.positions), *blocks, *_of(self.norm), self.head]


def verify(folder: Path, manifest: str) -> None:
    """Verify every byte of an exported model against its manifest, whose SHA-256 is `manifest`.

    Raises DamagedCheckpoint, OSError, and Refused for a model without a tokenizer.
    """
    described = read_manifest(folder, manifest)
    if TOKENIZER not in described.files:
        raise Refused(
            f"{folder}: found no {TOKENIZER}, expected the tokenizer of its training: export the model again with one"
        )
    for name, expected in described.files.items():
        verify_file(folder / name, expected)


def least_bytes(folder: Path, dtype: torch.dtype) -> int:
    """The memory of the weights in a folder in this dtype, in bytes. Only the headers are read."""
    stored = StoredWeights(folder, read_settings(folder))
    size = torch.empty((), dtype=dtype).element_size()
    tensors = {entry.hf_name: entry.stored for entry in stored.entries}
    return size * sum(torch.Size(shape).numel() for shape in tensors.values())


def read(folder: Path, dtype: torch.dtype, device: torch.device) -> DecoderWeights:
    """Read the weights of a verified folder. The peak memory is the weights and one block.

    Raises Refused for a model that is not a decoder, and ValueError for files that are not an exported model.
    """
    settings = read_settings(folder)
    shape = settings.model
    if not isinstance(shape, DecoderShape):
        raise Refused(f"{folder}: found a model of kind {settings.kind!r}, expected a decoder: it has no completions")
    stored = StoredWeights(folder, settings)
    stored.check()
    return _Reader(stored, shape, dtype, device).all()


class _Reader:
    def __init__(self, stored: StoredWeights, shape: DecoderShape, dtype: torch.dtype, device: torch.device) -> None:
        self._entries = {entry.name: entry for entry in stored.entries}
        self._stored = stored
        self._shape = shape
        self._dtype = dtype
        self._device = device

    def all(self) -> DecoderWeights:
        embedding = self._tensor("embedding.weight")
        return DecoderWeights(
            self._shape,
            self._stored.settings.data.vocabulary,
            self._stored.settings.data.length,
            embedding,
            self._tensor("positions.weight") if self._shape.positions == "learned" else None,
            tuple(self._block(f"blocks.{layer}.") for layer in range(self._shape.layers)),
            self._norm("norm"),
            embedding if self._shape.tied else self._tensor("head.weight"),
        )

    def _block(self, at: str) -> BlockWeights:
        gated = self._shape.activation == "swiglu"
        parts = [f"{at}attention.{name}" for name in ("query", "key", "value")]
        return BlockWeights(
            self._norm(f"{at}attention_norm"),
            self._fused(parts),
            self._linear(f"{at}attention.out"),
            self._norm(f"{at}feed_forward_norm"),
            self._fused([f"{at}feed_forward.{name}" for name in (("gate", "up") if gated else ("up",))]),
            self._linear(f"{at}feed_forward.down"),
            self._paired(f"{at}attention.query_norm.weight") if self._shape.qk_norm else None,
            self._paired(f"{at}attention.key_norm.weight") if self._shape.qk_norm else None,
        )

    def _fused(self, names: list[str]) -> Linear:
        weights = [self._paired(f"{name}.weight") for name in names]
        biases = [self._paired(f"{name}.bias") for name in names if f"{name}.bias" in self._entries]
        return Linear(torch.cat(weights), torch.cat(biases) if biases else None)

    def _linear(self, name: str) -> Linear:
        return Linear(self._tensor(f"{name}.weight"), self._optional(f"{name}.bias"))

    def _norm(self, name: str) -> Norm:
        return Norm(self._tensor(f"{name}.weight"), self._optional(f"{name}.bias"))

    def _paired(self, name: str) -> Tensor:
        """A tensor; rows that positions rotate are reordered into pairs."""
        stored = self._tensor(name)
        turned = self._shape.positions == "rotary" and any(part in name for part in TURNED)
        if not turned:
            return stored
        heads = stored.reshape(-1, 2, self._shape.features // 2, *stored.shape[1:])
        return heads.transpose(1, 2).reshape(stored.shape).contiguous()

    def _optional(self, name: str) -> Tensor | None:
        return self._tensor(name) if name in self._entries else None

    def _tensor(self, name: str) -> Tensor:
        return self._stored.read(self._entries[name]).to(self._device, self._dtype).contiguous()


TURNED = ("attention.query.", "attention.key.", "query_norm", "key_norm")
"""Parts of the names of tensors whose rows are the features of a head that positions rotate."""


def _of(part: object) -> list[Tensor]:
    if isinstance(part, Tensor):
        return [part]
    fields: Mapping[str, object] = vars(part) if isinstance(part, Linear | Norm) else {}
    return [tensor for tensor in fields.values() if isinstance(tensor, Tensor)]
