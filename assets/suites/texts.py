"""Texts: the documents of a snapshot's split as they were before they became tokens."""

from collections.abc import Iterator
from pathlib import Path

from slipway.assets.datasets.texts import tokenizer
from slipway.trainer.data import shards
from slipway.trainer.data.shards import TextSnapshot


def of_split(durable: Path, snapshot: TextSnapshot, split: str) -> Iterator[str]:
    """The documents, decoded one after the other, without loss. Raises ValueError when something is gone."""
    encoding = tokenizer.load(durable, snapshot.tokenizer.sha256)
    try:
        for shard in snapshot.splits[split].shards:
            for body in shards.documents(durable, shard, snapshot.dtype):
                yield encoding.decode(body[:-1].tolist())
    except FileNotFoundError as error:
        raise ValueError(f"{error.filename}: the shard is gone") from None
