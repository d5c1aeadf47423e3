"""Guessing: the loss of a model that has learnt nothing but how frequent each token or class is.

A candidate that is not better than that is compared with nobody.
"""

from pathlib import Path

from slipway.assets.datasets.images.snapshot import class_entropy
from slipway.assets.datasets.texts.snapshot import unigram_entropy
from slipway.trainer.data.images import ImageSnapshot
from slipway.trainer.data.snapshots import Snapshot


def entropy(described: Snapshot, durable: Path) -> float:
    """That loss on a snapshot, in nats."""
    if isinstance(described, ImageSnapshot):
        return class_entropy(described, durable)
    return unigram_entropy(described, durable)
