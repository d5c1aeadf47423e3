"""Checkpoint size: whether an evaluation needs one process or a job, and the number of ranks, from the small files.

A rank needs memory for its share of the weights, for what FSDP gathers during computation (the current block, the next
one, and the parameters outside the blocks), and for one sample: the logits of its tokens with the loss's intermediate
values. The remaining memory serves larger batches (`slipway.trainer.step.measuring`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipway.trainer.base import parsing
from slipway.trainer.checkpoint.disk import progress
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, TensorEntry, require_readable, tensor_entry
from slipway.trainer.checkpoint.disk.progress import PROGRESS
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.tensor_table import TYPES
from slipway.trainer.checkpoint.disk.verification import verified_chunks, verified_manifest
from slipway.trainer.checkpoint.tiers.tier import TierSource
from slipway.trainer.config import evaluating
from slipway.trainer.config.evaluating import RankPlaces
from slipway.trainer.config.operation import Evaluation
from slipway.trainer.plan import room
from slipway.trainer.plan.room import Room
from slipway.trainer.record.fence import Commit

BLOCK = re.compile(r"model/blocks\.(\d+)\.")
GATHERED_BLOCKS = 2
LOGITS = 3
"""The number of logits-sized tensors: the logits in fp32, their log-softmax, and what the loss stores."""
MARGIN = 0.05
"""The share of a rank's memory that stays free for fragmentation and for what the estimate leaves out."""


@dataclass(frozen=True)
class CheckpointSize:
    """The memory that a checkpoint needs, in bytes."""

    settings: Mapping[str, Any]
    """The configuration of its training."""
    weights: int
    gathered: int
    sample: int

    def of_rank(self, ranks: int) -> int:
        """The minimum memory of one of `ranks` ranks."""
        gathered = self.gathered if ranks > 1 else 0
        return math.ceil(self.weights / ranks) + gathered + self.sample


def of_checkpoint(source: TierSource, commit: Commit) -> CheckpointSize:
    """The size of a checkpoint on a tier. Raises DamagedCheckpoint, TierUnavailable, and ValueError for its layout."""
    where = f"{source}/{commit.folder}"
    manifest = verified_manifest(b"".join(source.read(commit.folder, MANIFEST)), commit.manifest, f"{where}/{MANIFEST}")
    require_readable(manifest.layout, Path(where))

    def read(name: str) -> bytes:
        chunks = source.read(commit.folder, name)
        return b"".join(verified_chunks(chunks, manifest.files[name], f"{where}/{name}"))

    try:
        settings = progress.decode(read(PROGRESS)).config
        table = parsing.value(read(TYPES)) if TYPES in manifest.files else {}
        tensors = {name: tensor_entry(entry) for name, entry in table.items()} if table else manifest.tensors
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedCheckpoint(f"{where}: its small files cannot be decoded: {error}") from None
    return of_tensors(settings, tensors)


def of_tensors(settings: Mapping[str, Any], tensors: Mapping[str, TensorEntry]) -> CheckpointSize:
    """The size of a checkpoint with these settings and tensors."""
    groups: dict[str, int] = {}
    for name, entry in tensors.items():
        if name.startswith("model/"):
            block = BLOCK.match(name)
            group = block[1] if block else ""
            groups[group] = groups.get(group, 0) + math.prod(entry.shape) * _element_bytes(entry.dtype)
    outside = groups.pop("", 0)
    blocks = groups.values()
    embedding = tensors.get("model/embedding.weight")
    vocabulary, width = embedding.shape[:2] if embedding else (0, 0)
    sample = 4 * settings["batch"].get("length", 0) * (LOGITS * vocabulary + 8 * width)
    return CheckpointSize(settings, outside + sum(blocks), outside + GATHERED_BLOCKS * max(blocks, default=0), sample)


def choose_ranks(
    size: CheckpointSize, evaluation: Evaluation, nodes: int, ranks_per_node: int, node_room: Room | None
) -> RankPlaces | None:
    """The smallest layout with enough memory for an evaluation; None for one process of the control plane.

    `nodes` is the maximum number of nodes of the training. If `node_room` is None, the memory of ranks is unknown; then
    the evaluation uses as many ranks as the training needs for its model, which is enough.

    Raises ValueError with the numbers and what to change if nothing fits.
    """
    if not evaluation.ranks and size.weights <= evaluation.process_gigabytes * 1e9:
        return None
    possible = list(evaluating.fitting(size.settings, evaluation, nodes, ranks_per_node))
    for rank_places in possible:
        if node_room is None and (
            evaluation.ranks or rank_places.ranks >= _holders(size.settings, nodes, ranks_per_node)
        ):
            return rank_places
        if node_room is not None and size.of_rank(rank_places.ranks) <= _rank_bytes(node_room, rank_places):
            return rank_places
    most = possible[-1]
    if node_room is None:
        return most
    needs = "".join(
        f"; of {rank_places.ranks} ranks, each needs {size.of_rank(rank_places.ranks) / 1e9:,.2f} GB and has "
        f"{max(0, _rank_bytes(node_room, rank_places)) / 1e9:,.2f} GB"
        for rank_places in dict.fromkeys((possible[0], most))
    )
    remedy = "use more ranks (evaluation.ranks)" if evaluation.ranks else "allow more nodes (placement.nodes.max)"
    raise ValueError(
        f"evaluation: weights of {size.weights / 1e9:,.2f} GB do not fit {node_room.name}{needs}; {remedy}, or divide "
        "matrices too (evaluation.tensor)"
    )


def in_this_place(node_room: Room | None, sees_nodes: bool) -> Room | None:
    """The memory of the ranks: that of the cluster's profile, or that of this machine if it hosts the nodes."""
    return room.local_room(1) if node_room is None and sees_nodes else node_room


def _rank_bytes(node_room: Room, rank_places: RankPlaces) -> int:
    """The memory of a rank for the model. Ranks share the host's memory, but each has its own GPU."""
    rank_memory = node_room.rank_bytes if node_room.on_gpu else node_room.host_bytes // rank_places.ranks
    groups = 2 if rank_places.ranks > 1 else 0
    return int((1 - MARGIN) * rank_memory) - node_room.context_bytes - groups * node_room.group_bytes


def _holders(settings: Mapping[str, Any], nodes: int, ranks_per_node: int) -> int:
    """The number of the training's ranks that together hold one copy of its weights.

    If FSDP shards over all ranks, a quarter of them: the training needs 16 bytes per parameter, an evaluation 4.
    """
    layout: Mapping[str, Any] = settings.get("layout", {})
    divided: int = layout.get("tensor", 1) * layout.get("pipeline", 1)
    match layout.get("shard", "none"):
        case "none":
            return divided
        case "hybrid":
            group: int = layout.get("shard_ranks") or max(1, ranks_per_node // layout.get("tensor", 1))
            return divided * group
        case _:
            return max(divided, math.ceil(nodes * ranks_per_node / 4))


def _element_bytes(dtype: str) -> int:
    """The bytes per element of a type by its name in safetensors, such as F32, BF16, F8_E4M3, I64, BOOL."""
    bits = re.search(r"\d+", dtype)
    return int(bits[0]) // 8 if bits else 1


def with_gpus(section: Mapping[str, Any], ranks: int) -> dict[str, Any]:
    """The section `placement.kubernetes` for pods of `ranks` ranks: if it requests GPUs, then one per rank."""
    requested = section.get("resources")
    if not requested:
        return dict(section)
    return {**section, "resources": {k: str(ranks) if k.endswith("/gpu") else v for k, v in requested.items()}}
