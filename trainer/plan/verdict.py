"""The verdict: whether a training fits, by how much, and the cost of its checkpoints and its traffic.

It compares the measure of `slipway.trainer.plan.stages` with a room. `advice` has changes for a recipe that does not
fit, each measured like the recipe itself.

A plan takes seconds, or a minute for a large model. The `floor` takes no time: it is a lower bound of a rank's bytes,
by multiplication alone, without a run of the model. A recipe whose floor is above the room cannot fit, and a training
whose floor is far below it needs no plan before it starts.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipway.trainer.base import codec
from slipway.trainer.base.units import GIB, MIB
from slipway.trainer.checkpoint.memory import slots
from slipway.trainer.config.layout import in_flight, micro_batches, waiting
from slipway.trainer.config.operation import Storage
from slipway.trainer.plan.measure import StageMeasure
from slipway.trainer.plan.question import Question, with_fields
from slipway.trainer.plan.room import Room

FRAGMENTS = 0.05
"""The fraction of a step's temporary bytes that an allocator loses between blocks of other sizes."""
STEADY = ("weights", "gradients", "optimizer")
"""The purposes that stay from step to step."""
Measured = Callable[[Question], Sequence[StageMeasure]]
"""Answers a question. Raises ValueError for a layout that does not fit its ranks."""
WEIGHT_BYTES = 4
"""Weights, gradients and the optimiser's state are fp32 in every precision."""
STREAM_BYTES = 2
"""A number between two blocks, in the narrowest precision."""
FAR_BELOW = 8
"""A floor below this fraction (1 / n) of the room leaves enough for activations, logits and buffers."""


@dataclass(frozen=True, kw_only=True)
class StageVerdict:
    """One rank of one stage."""

    stage: int
    ranks: int
    """All ranks of this stage, which take the same, or a little less."""
    first_rank: int
    in_flight: int
    """The most micro-batches whose activations it keeps at once; of interleaved stages, each is of one stage."""
    parts: Mapping[str, int]
    """Bytes on the device by purpose: of the measure, and the margins."""
    needed: int
    spare: int
    """Free bytes of the device; negative if the training does not fit."""


@dataclass(frozen=True, kw_only=True)
class HostVerdict:
    """The memory and the disk of one node."""

    processes: int
    buffers: int
    """Bytes that are pinned for checkpoints."""
    needed: int
    spare: int
    nvme_needed: int
    """Bytes of checkpoints on the node's NVMe; staged shards come on top."""
    nvme_spare: int | None
    """The free bytes for shards; None if the size of the NVMe is not configured."""


@dataclass(frozen=True, kw_only=True)
class CheckpointVerdict:
    """One checkpoint."""

    size: int
    """Bytes, over all ranks."""
    seconds: Mapping[str, float | None]
    """The seconds of a copy to each tier at the room's rates; None if the rate is not configured."""
    backup_rate: float
    """Bytes/s that the object store must take, so that a copy is there within its interval."""


@dataclass(frozen=True, kw_only=True)
class PlanVerdict:
    """The result of a plan."""

    fits: bool
    room: str
    ranks: int
    parameters: int
    stages: Sequence[StageVerdict]
    host: HostVerdict
    checkpoint: CheckpointVerdict
    sent: Mapping[str, int]
    """Bytes that a rank puts into collectives in one step, by the axis of the mesh: the largest of all stages."""
    waiting: float
    """The share of a step in which a rank of the pipeline waits for others, if all its blocks take equally long."""
    least_gpus: int | None
    """The fewest GPUs with this layout and these nodes' memory, in whole nodes above one; None when no number fits."""
    problems: Sequence[str]
    remedies: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """The verdict as JSON has it."""
        fields: dict[str, Any] = codec.plain(self)
        return fields


def judge(question: Question, measures: Sequence[StageMeasure], room: Room, storage: Storage) -> PlanVerdict:
    """Compare the measure with the room."""
    stages = [_stage(question, measure, room) for measure in measures]
    size = sum(measure.checkpoint for measure in measures)
    host = _host(question, size, room, storage)
    problems = [*_device_problems(stages, room), *_host_problems(host, room)]
    return PlanVerdict(
        fits=not problems,
        room=room.name,
        ranks=question.ranks,
        parameters=sum(measure.parameters for measure in measures),
        stages=stages,
        host=host,
        checkpoint=_checkpoint(question, size, room, storage),
        sent={axis: max(measure.sent.get(axis, 0) for measure in measures) for axis in _axes(measures)},
        waiting=waiting(question.layout, _parts(question)),
        least_gpus=_least_gpus(question, measures, room),
        problems=problems,
    )


def needed_bytes(parts: Mapping[str, int], question: Question, room: Room) -> dict[str, int]:
    """The parts of a rank's device, with the margins."""
    moving = sum(size for name, size in parts.items() if name not in STEADY)
    mesh = question.mesh
    groups = sum(
        size > 1 for size in (mesh.pipeline, mesh.replicas, mesh.shards, mesh.context, mesh.tensor, mesh.ranks)
    )
    return {
        **parts,
        "context": room.context_bytes,
        "nccl": groups * room.group_bytes,
        "fragments": round(FRAGMENTS * moving),
    }


def gib(size: float) -> str:
    """Bytes for people."""
    return f"{size / GIB:,.1f} GiB" if abs(size) >= GIB else f"{size / MIB:,.1f} MiB"


def suggestions_for(question: Question, measured: Measured, room: Room, storage: Storage) -> list[str]:
    """The changes, as FIELD=VALUE, with which the training fits: the first ones of a fixed order that are enough.

    Empty when all of them together are not enough. Changes that do not change the numbers of a step come first.
    """
    suggestions: list[str] = []
    for field, value in _changes(question, room):
        changed = _with(question, field, value)
        try:
            verdict = judge(changed, measured(changed), room, storage)
        except ValueError:  # this change does not fit the model or the ranks
            continue
        question = changed
        suggestions.append(f"{field}={value}")
        if verdict.fits:
            return suggestions
    return []


def floor(question: Question) -> int:
    """A lower bound of the bytes of a rank of an average stage; 0 for a model of unknown size.

    It counts the rank's part of the weights, the gradients and the optimiser's state, and the inputs of the blocks of
    one micro-batch, which every layout saves. Raises ValueError for a layout that does not fit.
    """
    mesh = question.mesh
    shape = question.model
    data = question.data
    copies = 1 if question.run.freeze else 2 + question.optimizer.copies
    state = shape.least_weights(data) * WEIGHT_BYTES * copies * mesh.replicas // mesh.ranks
    shares = mesh.pipeline * mesh.tensor * mesh.context
    micro = min(question.batch.micro, -(-question.batch.sequences // mesh.data))
    return state + micro * shape.least_kept(data) * STREAM_BYTES // shares


def may_not_fit(question: Question, rank_bytes: int) -> bool:
    """Whether a plan is worth its time for a rank with this memory; it is for a model of unknown size."""
    return not 0 < floor(question) * FAR_BELOW < rank_bytes


def _stage(question: Question, measure: StageMeasure, room: Room) -> StageVerdict:
    parts = needed_bytes(measure.parts, question, room)
    needed = sum(parts.values())
    first = measure.stage * question.mesh.gradient_ranks * question.mesh.tensor
    return StageVerdict(
        stage=measure.stage,
        ranks=measure.ranks,
        first_rank=first,
        in_flight=in_flight(question.layout, measure.stage, _parts(question)),
        parts=parts,
        needed=needed,
        spare=room.rank_bytes - needed,
    )


def _parts(question: Question) -> int:
    """The micro-batches of a step."""
    return micro_batches(question.batch.sequences, question.batch.micro, question.mesh.data)


def _host(question: Question, size: int, room: Room, storage: Storage) -> HostVerdict:
    """A node's memory and NVMe: the ranks of a node have their parts of a checkpoint there.

    Of several nodes, each also keeps a copy of another's (`slipway.trainer.checkpoint.tiers.ring`).
    """
    share = -(-size // question.ranks) * question.ranks_per_node
    processes = room.process_bytes * question.ranks_per_node
    buffers = slots.count(storage) * share
    nvme_bytes = (storage.nvme.last + 1) * share * (2 if question.nodes > 1 else 1) if storage.nvme.minutes else 0
    return HostVerdict(
        processes=processes,
        buffers=buffers,
        needed=processes + buffers,
        spare=room.host_bytes - processes - buffers,
        nvme_needed=nvme_bytes,
        nvme_spare=None if room.nvme_bytes is None else room.nvme_bytes - nvme_bytes,
    )


def _checkpoint(question: Question, size: int, room: Room, storage: Storage) -> CheckpointVerdict:
    of_node = size / question.nodes
    rates = {"nvme": room.nvme_rate, "durable": room.durable_rate}
    seconds = {tier: of_node / rate if rate else None for tier, rate in rates.items()}
    within = 60 * (storage.backup.minutes or storage.durable.minutes or 1)
    return CheckpointVerdict(size=size, seconds=seconds, backup_rate=size / within)


def _least_gpus(question: Question, measures: Sequence[StageMeasure], room: Room) -> int | None:
    """The fewest GPUs: with fewer data-parallel ranks, a rank's divided bytes grow, and so may its micro-batch.

    A number above that of one node is a number of whole nodes, because a job's nodes have equally many ranks.
    """
    mesh = question.mesh
    batch = question.batch
    apart = mesh.pipeline * mesh.tensor * mesh.context
    if question.layout.shard != "full":
        replica_gpus = (
            mesh.pipeline * mesh.tensor * max(mesh.context, mesh.shards if question.layout.shard == "hybrid" else 1)
        )
        fits = all(_fits_over(question, measure, room, mesh.data) for measure in measures)
        return _in_whole_nodes(replica_gpus, question) if fits else None
    for data in range(1, batch.sequences + 1):
        if _is_whole_nodes(apart * data, question) and all(
            _fits_over(question, measure, room, data) for measure in measures
        ):
            return apart * data
    return None


def _is_whole_nodes(gpus: int, question: Question) -> bool:
    return gpus <= question.ranks_per_node or gpus % question.ranks_per_node == 0


def _in_whole_nodes(gpus: int, question: Question) -> int:
    return gpus if _is_whole_nodes(gpus, question) else -(-gpus // question.ranks_per_node) * question.ranks_per_node


def _fits_over(question: Question, measure: StageMeasure, room: Room, data: int) -> bool:
    mesh = question.mesh
    batch = question.batch
    micro, now = (min(batch.micro, -(-batch.sequences // shares)) for shares in (data, mesh.data))
    parts = {
        name: size if name in STEADY else round(size * max(1.0, micro / now)) for name, size in measure.parts.items()
    }
    grown = measure.divided * mesh.shards // (data * mesh.context) - measure.divided if measure.divided else 0
    return sum(needed_bytes(parts, question, room).values()) + grown <= room.rank_bytes


def _axes(measures: Sequence[StageMeasure]) -> list[str]:
    return list(dict.fromkeys(axis for measure in measures for axis in measure.sent))


def _device_problems(stages: Sequence[StageVerdict], room: Room) -> list[str]:
    worst = min(stages, key=lambda stage: stage.spare)
    if worst.spare >= 0:
        return []
    where = f"a rank of stage {worst.stage}" if len(stages) > 1 else "a rank"
    return [f"{where} needs {gib(worst.needed)}, and has {gib(room.rank_bytes)}: {gib(-worst.spare)} too much"]


def _host_problems(host: HostVerdict, room: Room) -> list[str]:
    problems = []
    if host.spare < 0:
        need = f"a node's processes need {gib(host.needed)} of memory ({gib(host.buffers)} for checkpoints)"
        problems.append(f"{need}, and have {gib(room.host_bytes)}")
    if host.nvme_spare is not None and host.nvme_spare < 0:
        assert room.nvme_bytes is not None
        needed = f"{host.nvme_needed / 1e9:,.0f} GB"
        has = f"{room.nvme_bytes / 1e9:,.0f} GB"
        problems.append(f"a node's checkpoints need {needed} of NVMe, and have {has}")
    return problems


def _changes(question: Question, room: Room) -> Iterator[tuple[str, Any]]:
    layout = question.layout
    shape = question.model
    if layout.activations != "recompute" and shape.recomputes:
        yield "layout.activations", "recompute"
    if layout.shard != "full" and question.mesh.gradient_ranks > 1:
        yield "layout.shard", "full"
    if question.batch.micro > 1:
        yield "batch.micro", 1
    if layout.tensor < question.ranks_per_node and shape.divided:
        yield "layout.tensor", question.ranks_per_node
    most = room.profile.nodes if room.profile else question.nodes
    nodes = question.nodes * 2
    while nodes <= most:
        yield "placement.nodes", nodes
        nodes *= 2


def _with(question: Question, field: str, value: Any) -> Question:
    section, _, name = field.partition(".")
    if section == "placement":
        return dataclasses.replace(question, nodes=value)
    changed: Mapping[str, Any] = {section: {name: value}}
    return with_fields(question, **changed)
