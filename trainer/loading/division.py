"""Division: which samples of each global batch which rank has, for the ledger and for incidents. Pure.

The batch stays the same when ranks are lost or come back, and so does its order; only who has which part changes.
"""

from collections.abc import Sequence

from slipway.trainer.config.layout import Mesh
from slipway.trainer.loading.order import rank_slice

NODES_IN_WORDS = 8
"""A sentence names so many nodes at most; the ledger has all."""
Span = tuple[int, int]
"""The places of a rank's samples in the batch: the first one, and the one after the last."""


def spans(sequences: int, mesh: Mesh) -> list[Span]:
    """The samples of each rank, of a batch of so many; ranks that share matrices or sequences have the same ones."""
    slices = (rank_slice(sequences, mesh.data_rank(rank), mesh.data) for rank in range(mesh.ranks))
    return [(each.start, each.stop) for each in slices]


def in_words(sequences: int, mesh: Mesh, ranks: Sequence[str]) -> str:
    """Who has which samples, by node, for a person; `ranks` names the node of each rank."""
    found = dict[str, list[Span]]()
    for node, span in zip(ranks, spans(sequences, mesh), strict=True):
        found.setdefault(node, []).append(span)
    if len(found) > NODES_IN_WORDS:
        return f"{len(found)} nodes, in the order of their ranks"
    return ", ".join(f"{node} {_text(each)}" for node, each in found.items())


def _text(found: Sequence[Span]) -> str:
    """The samples of a node; those of neighbouring ranks are one range."""
    merged: list[Span] = []
    for first, end in sorted(set(found)):
        if merged and merged[-1][1] >= first:
            merged[-1] = merged[-1][0], end
        else:
            merged.append((first, end))
    return " and ".join(f"{first} to {end - 1}" for first, end in merged)
