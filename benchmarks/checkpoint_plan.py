"""A save by rank 0 of a 70B model that is divided over 256 ranks: what it costs the steps besides the copy.

``python -m benchmarks.checkpoint_plan`` prints these rows of `benchmarks.checkpoint` alone. The tensors are as many and
divided as those of the 70B decoder and its AdamW, and 1/16 as wide, so that the plan is as large and the copy is not.
The other 255 ranks are offers without processes, on PyTorch's fake process group. Planning happens once, before the
first save; the rows give it too.
"""

import json
import pickle
import statistics
import tempfile
import time
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from slipway.trainer.base import atomic
from slipway.trainer.checkpoint import state
from slipway.trainer.checkpoint.disk import tensor_table
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.saving import planning, saver
from slipway.trainer.config.layout import Mesh
from slipway.trainer.config.operation import Placement
from slipway.trainer.node.world import World
from slipway.trainer.record import fence

RANKS, LAYERS, THINNER = 256, 80, 16
WIDTH, HIDDEN, KEYS, VOCABULARY = (size // THINNER for size in (8192, 28672, 1024, 128256))
MOMENTS = ("exp_avg", "exp_avg_sq")
ROUNDS = 5
TOKEN = fence.Token(1)
Row = tuple[str, str, dict[str, float], float | None]
"""Metric, unit, values by who gives them, aim."""


class Divided:
    """The engine of rank 0: the parameters' names, its part of each, and of their moments."""

    def __init__(self) -> None:
        mesh = init_device_mesh("cpu", (RANKS,))
        self.tensors: dict[str, Tensor] = {}
        for name, shape in _shapes().items():
            self.tensors[f"model/{name}"] = _part(shape, mesh)
            self.tensors |= {f"optimizer/{name}/{moment}": _part(shape, mesh) for moment in MOMENTS}
            self.tensors[f"optimizer/{name}/step"] = torch.zeros(())


def rows(folder: Path) -> list[Row]:
    """The rows of this benchmark."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    try:
        engine, world = Divided(), World(0, RANKS, 0, torch.device("cpu"), Mesh(replicas=RANKS))
        begun = time.process_time()
        plan = _planned(engine, world)
        planned = time.process_time() - begun
        sizes = {section.name: section.size for section in plan.sections}
        own = sizes[tensor_table.TYPES] + sizes[tensor_table.part_name(0)]
        blocked, copied, processor = _saves(folder, engine, plan, world)
    finally:
        dist.destroy_process_group()
    what = f"70B on {RANKS} ranks, rank 0"
    whole_table = sizes[tensor_table.TYPES] + RANKS * sizes[tensor_table.part_name(0)]
    return [
        (f"save blocks besides the copy, {what}", "s", {"ours": blocked - copied, **_before(engine, plan)}, 0.15),
        (f"save besides the copy, {what}", "CPU-s", {"ours": processor - copied}, None),
        (f"planned once, {what}", "CPU-s", {"ours": planned}, None),
        (f"tensor table that a rank reads, {what}", "MB", {"ours": own / 1e6, "whole": whole_table / 1e6}, None),
    ]


def _saves(folder: Path, engine: Divided, plan: planning.PartPlan, world: World) -> tuple[float, float, float]:
    """Median seconds of `Saver.save`, and processor seconds of the copying in it and of the whole."""
    placement = Placement(store=str(folder / "store"), durable=str(folder), nvme=str(folder))
    fence.claim(folder / "store", TOKEN, nodes=("local",), cause="benchmark", by="benchmark")
    saver.LATEST_PART = 0.0  # the other ranks will not report
    snapshot = state.TrainingState(engine.tensors, {}, frozenset())
    state.collect = lambda *_: snapshot
    saving = saver.Saver("benchmark", placement, world, TOKEN)
    saving._plan, saving._signature = plan, planning.signature(snapshot)
    blocked, copied, processor = list[float](), list[float](), list[float]()
    for buffer in saving._channel.buffers:
        buffer.prepare(plan, world.device)
    try:
        for number in range(1, ROUNDS + 1):
            begun, used = time.perf_counter(), time.process_time()
            saving.save(cast(state.Stateful, engine), TrainingProgress(number, 0, 0, {}, {}, {}, {}, 0.0))
            blocked.append(time.perf_counter() - begun)
            processor.append(time.process_time() - used)
            while saving.busy:
                saving.events(0.1)
            used = time.process_time()
            for tensor in engine.tensors.values():
                (tensor.to_local() if isinstance(tensor, DTensor) else tensor).clone()
            copied.append(time.process_time() - used)
    finally:
        saving.close()
    return statistics.median(blocked), statistics.median(copied), statistics.median(processor)


def _before(engine: Divided, plan: planning.PartPlan) -> dict[str, float]:
    """What the manifest of all ranks would add, if rank 0 serialised it in each save: of as many entries."""
    (part,) = (section.header for section in plan.sections if section.name == tensor_table.part_name(0))
    entries = json.loads(part)
    begun = time.process_time()
    for _ in range(RANKS):
        atomic.canonical_json(entries)
    return {"the table of all ranks in the request, serialising alone (CPU-s)": time.process_time() - begun}


def _planned(engine: Divided, world: World) -> planning.PartPlan:
    """Rank 0's plan, from the offers of all ranks, which it receives pickled."""
    planner = DefaultSavePlanner(flatten_state_dict=False)
    snapshot = state.TrainingState(engine.tensors, {}, frozenset())
    offer, own = planning.offered(planner, snapshot, world)
    answer = planning.decide(planner, [pickle.loads(pickle.dumps(offer)) for _ in range(RANKS)])[0]
    types = {**planning._divided_types(snapshot, world), **answer.types}
    return planning.plan_part([*own, *answer.items], 0, frozenset(), types)


def _shapes() -> dict[str, tuple[int, ...]]:
    """The parameters of the 70B decoder, by name; rows are a multiple of the ranks, as they are at full width."""
    block = {
        "attention.query.weight": (WIDTH, WIDTH),
        "attention.key.weight": (KEYS * 4, WIDTH),
        "attention.value.weight": (KEYS * 4, WIDTH),
        "attention.out.weight": (WIDTH, WIDTH),
        "feed_forward.gate.weight": (HIDDEN // RANKS * RANKS, WIDTH),
        "feed_forward.up.weight": (HIDDEN // RANKS * RANKS, WIDTH),
        "feed_forward.down.weight": (WIDTH, HIDDEN),
        "attention_norm.weight": (WIDTH,),
        "feed_forward_norm.weight": (WIDTH,),
    }
    rows = VOCABULARY // RANKS * RANKS
    ends = {"embedding.weight": (rows, WIDTH), "norm.weight": (WIDTH,), "head.weight": (rows, WIDTH)}
    blocks = {f"blocks.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in block.items()}
    return {**blocks, **ends}


def _part(shape: tuple[int, ...], mesh: DeviceMesh) -> DTensor:
    return DTensor.from_local(torch.zeros(shape[0] // RANKS, *shape[1:]), mesh, [Shard(0)], run_check=False)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for metric, unit, values, aim in rows(Path(folder)):
            peers = {name: value for name, value in values.items() if name != "ours"}
            line = {"benchmark": "checkpoint", "metric": metric, "unit": unit, "better": "lower"}
            print(json.dumps({**line, "ours": values["ours"], "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
