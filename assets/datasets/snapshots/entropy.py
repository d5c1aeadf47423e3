"""Entropy: the loss of a model that knows only how frequent each token or class is, and so the bar to beat."""

import numpy as np
import numpy.typing as npt


def entropy(counts: npt.NDArray[np.int64], sha256: str) -> float:
    """H = -sum p ln p (Shannon 1948), in nats, of what was counted in the validation split of a snapshot.

    Raises ValueError, naming the snapshot, when nothing was counted.
    """
    if not counts.sum():
        raise ValueError(f"snapshot {sha256}: its validation split is empty, so it has no entropy")
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
