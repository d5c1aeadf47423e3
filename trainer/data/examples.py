"""Examples: a split's documents (or samples) one by one, so that each has its own loss.

A document is read as its own sequence. The end token of a document precedes it, as in training, so its first token is
predicted too. A document that is longer than a sequence is cut into windows, as a shard is. For a model that reads only
windows of one length, or pictures, each sample is an example.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipway.trainer.data import shards
from slipway.trainer.data.documents import Documented
from slipway.trainer.data.sequences import OpenTokens, Tokens


@dataclass(frozen=True)
class Piece:
    """Some windows of one document, which are measured together."""

    example: int
    shard: int
    first: int
    """Of the document's tokens with the end of a document before them, the first that is read."""
    windows: int
    length: int
    """Of each window, less one: its last token is a target alone."""


class LoneDocuments:
    """The documents of one split of a text snapshot, each as a sequence of its own."""

    def __init__(self, tier: Path, snapshot: shards.TextSnapshot, split: str, length: int, rows: int) -> None:
        """`length` is that of a window, and `rows` is how many windows are read at once. Raises OSError, ValueError."""
        self._end = snapshot.tokenizer.end_of_document
        self._dtype = shards.DTYPES[snapshot.dtype]
        self._shards = [
            OpenTokens(*map(np.asarray, shards.open_shard(tier, shard, snapshot.dtype)))
            for shard in snapshot.splits[split].shards
        ]
        self.pieces = list(self._pieces(length, rows))
        self.count = sum(len(shard.offsets) - 1 for shard in self._shards)

    def read(self, piece: Piece, documents: bool) -> Tokens | Documented:
        """The windows of a piece, [windows, length + 1]; with the bounds of documents, of which there is one."""
        body = self._document(piece)
        tokens: Tokens = np.empty((piece.windows, piece.length + 1), self._dtype)
        for row in range(piece.windows):
            start = piece.first + row * piece.length
            tokens[row] = body[start : start + piece.length + 1]
        return Documented(tokens, np.zeros(tokens.shape, np.uint32)) if documents else tokens

    def _document(self, piece: Piece) -> Any:
        """The tokens of the piece's document, after the end of another one."""
        shard = self._shards[piece.shard]
        before = sum(len(shard.offsets) - 1 for shard in self._shards[: piece.shard])
        index = piece.example - before
        begin = int(shard.offsets[index])
        end = int(shard.offsets[index + 1])
        return np.concatenate([np.array([self._end], self._dtype), shard.tokens[begin:end]])

    def _pieces(self, length: int, rows: int) -> Iterator[Piece]:
        example = 0
        for index, shard in enumerate(self._shards):
            for size in np.diff(shard.offsets.astype(np.int64)).tolist():
                for first in range(0, size // length * length, rows * length):
                    yield Piece(example, index, first, min(rows, (size - first) // length), length)
                rest = size % length
                if rest:
                    yield Piece(example, index, size - rest, 1, rest)
                example += 1
