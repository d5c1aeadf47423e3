"""Formats of datasets on disk: shards, snapshots, vocabularies, and the readers of their samples."""

from slipway.trainer.data.sequences import Sequences, Tokens

__all__ = ["Sequences", "Tokens"]  # scripts of one's own, kept in homes of 0.1 too, find them here (docs/scripts.md)
