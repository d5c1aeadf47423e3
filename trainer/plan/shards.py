"""Shards: how the nodes of a plan would hold the training's snapshot, and the bytes on each node's NVMe.

The trainer makes the same choice at its start (`slipway.trainer.staging.holding`). Before a dataset has a snapshot, the
plan has the largest size for each way.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.staging import holding
from slipway.trainer.staging.holding import SnapshotNeed, Staging, size


@dataclass(frozen=True, kw_only=True)
class ShardsVerdict:
    """The part of the snapshot on a node; sizes in bytes."""

    kind: str
    """whole, streaming, parts or window; empty for a problem, and while the snapshot's size or the room is unknown."""
    why: str
    """The sizes that decide it, or the unknown ones."""
    snapshot: int | None
    """None before there is one."""
    room: int | None
    """The bytes for shards on a node's NVMe; None if they are not configured."""
    least: int
    """The bytes of the shards of validation and of the steps in progress: the least room."""
    nvme_needed: int | None
    """The bytes of the shards on a node's NVMe; a window takes more if there is room."""
    whole_up_to: int | None
    """The largest snapshot that fits each node as a whole; None if the room is not known."""
    parts_up_to: int | None
    """The largest snapshot that the nodes can divide."""
    problem: str = ""
    """Why it cannot work; empty when it can."""

    def document(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        fields: dict[str, Any] = codec.plain(self)
        return fields


def room_of(nvme_bytes: int | None, spare: int | None, gigabytes: float | None) -> int | None:
    """The room for shards on a node whose NVMe has so many bytes, of which checkpoints leave `spare`.

    `gigabytes` is the recipe's `placement.nvme_gigabytes`. None when none of these is known.
    """
    share = None if nvme_bytes is None else int(holding.SHARE * nvme_bytes)
    limit = None if gigabytes is None else int(gigabytes * 1e9)
    known = [max(0, bound) for bound in (share, spare, limit) if bound is not None]
    return min(known) if known else None


def judge_shards(staging: Staging, need: SnapshotNeed, known: bool, room: int | None, nodes: int) -> ShardsVerdict:
    """How `nodes` nodes with this room each would hold the snapshot; `known` says whether `need.total` is its size."""
    kind = why = problem = ""
    rooms = dict.fromkeys([f"node {number}" for number in range(nodes)], room or 0)
    if room is None:
        why = "nobody has said how large a node's NVMe is"
    elif not known:
        why = "the dataset has no snapshot yet"
        if room < need.least:
            problem = f"a node has room for {size(room)} of shards, and its steps read up to {size(need.least)}"
    else:
        try:
            choice = holding.choose(staging, need, rooms)
            kind = choice.kind
            why = choice.why
        except ValueError as error:
            problem = str(error)
    taken = {"whole": need.total, "streaming": need.total, "window": need.least}
    taken["parts"] = need.least + -(-need.divided // nodes)
    return ShardsVerdict(
        kind=kind,
        why=why,
        snapshot=need.total if known else None,
        room=room,
        least=need.least,
        nvme_needed=taken.get(kind),
        whole_up_to=room,
        parts_up_to=None if room is None else nodes * max(0, room - need.least),
        problem=problem,
    )


def report_shards(verdict: ShardsVerdict, nodes: int) -> Iterator[str]:
    """The lines of the report."""
    if verdict.problem:
        yield f"The nodes cannot hold the snapshot: {verdict.problem}."
    elif verdict.kind:
        assert verdict.nvme_needed is not None
        yield f"Shards take {size(verdict.nvme_needed)} of a node's NVMe, held as `{verdict.kind}`: {verdict.why}."
    elif verdict.whole_up_to is not None and verdict.parts_up_to is not None:
        yield f"How a node holds its shards depends on the snapshot's size, and {verdict.why}:"
        yield f"  whole    up to {size(verdict.whole_up_to)}"
        if nodes > 1:
            yield f"  parts    up to {size(verdict.parts_up_to)}, over {nodes} nodes"
        yield f"  window   of any size: {size(verdict.least)} and more for what the steps read"
    else:
        yield f"Shards take {size(verdict.least)} of a node's NVMe at least, for what its steps read at once."
