"""Checkpoints of two ranks in mid-training, with everything on disk: ours beside torch.save and DCP.

``python -m benchmarks.checkpoint [--megabytes N] [--rounds N]``: how long the training is held up, how long it takes
until the checkpoint is there, and how much slower steps are meanwhile; then loading by one rank what two have saved,
verifying, and how many of injected faults a reader finds. The state is a model whose matrices are sharded over the
ranks, and its AdamW.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from benchmarks import checkpoint_faults, checkpoint_plan
from slipway.trainer.checkpoint import state
from slipway.trainer.checkpoint.disk import contents
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.saving import saver
from slipway.trainer.config.layout import Mesh
from slipway.trainer.config.operation import Placement
from slipway.trainer.node.world import World
from slipway.trainer.record import fence

RANKS, WIDTH = 2, 2048
WORK, PRODUCTS = 512, 8
QUIET_STEPS = 8
TOKEN = fence.Token(1)


@dataclass(frozen=True)
class Figures:
    """Of one way to save; seconds."""

    first: float
    """Held up by the first save."""
    steady: float
    total: float
    """From the call to the end of the last byte's way to the disk."""
    slowdown: float
    """A step's time while a checkpoint is written, over that without."""


class Engine:
    """A sharded model and its optimiser, both with values."""

    def __init__(self, megabytes: int) -> None:
        layers = max(1, round(megabytes * 2**20 / (3 * 4 * WIDTH * WIDTH)))
        mesh = init_device_mesh("cpu", (RANKS,))
        self.model = nn.ParameterList(
            distribute_tensor(torch.randn(WIDTH, WIDTH), mesh, [Shard(0)]) for _ in range(layers)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), fused=True)
        for parameter in self.model:
            parameter.grad = torch.ones_like(parameter)
        self._work = torch.randn(WORK, WORK)
        self.step()

    def step(self) -> float:
        """Seconds of one step: matrix products, and an update of every weight."""
        begun = time.perf_counter()
        for _ in range(PRODUCTS):
            torch.mm(self._work, self._work)
        self.optimizer.step()
        return time.perf_counter() - begun

    def extra_state(self) -> dict[str, Any]:
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        assert not state

    def own_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load_own_state(self, state: dict[str, torch.Tensor]) -> None:
        assert not state

    def tensors(self) -> dict[str, torch.Tensor]:
        return dict(state.collect(self, 0).tensors)


class Way(Protocol):
    """One way to save."""

    def save(self, engine: Engine, number: int) -> None: ...

    def done(self) -> bool: ...

    def close(self) -> None: ...


class OurSaver:
    def __init__(self, folder: Path, world: World) -> None:
        placement = Placement(store=str(folder / "store"), durable=str(folder), nvme=str(folder))
        self._saver = saver.Saver("benchmark", placement, world, TOKEN)
        if world.is_rank_zero:
            fence.claim(folder / "store", TOKEN, nodes=("local",), cause="benchmark", by="benchmark")
        self._leads = world.is_rank_zero

    def prepare(self, engine: Engine) -> None:
        self._saver.prepare(engine)

    def save(self, engine: Engine, number: int) -> None:
        self._saver.save(engine, TrainingProgress(number, 0, 0, {}, {}, {}, {}, 0.0))

    def done(self) -> bool:
        assert all(event["event"] == "committed" for event in self._saver.events())
        return not self._saver.busy

    def close(self) -> None:
        self._saver.close()


class Torch:
    """Each rank its own file, whole at the end."""

    def __init__(self, folder: Path, world: World) -> None:
        self._path = folder / f"rank-{world.rank}.pt"

    def save(self, engine: Engine, number: int) -> None:
        local = {name: getattr(t, "_local_tensor", t) for name, t in engine.tensors().items()}
        with open(self._path, "wb") as file:
            torch.save(local, file)
            file.flush()
            os.fsync(file.fileno())

    def done(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Dcp:
    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder

    def save(self, engine: Engine, number: int) -> None:
        save(engine.tensors(), checkpoint_id=self._folder / str(number))

    def done(self) -> bool:
        return True

    def close(self) -> None:
        pass


class DcpAsync:
    """As it comes: a thread, and new memory for each save."""

    def __init__(self, folder: Path, world: World) -> None:
        self._folder = folder
        self.options: dict[str, Any] = {}
        self._group = dist.new_group(backend="gloo")
        self._answer: Any = None

    def save(self, engine: Engine, number: int) -> None:
        where = self._folder / str(number)
        self._answer = async_save(engine.tensors(), checkpoint_id=where, process_group=self._group, **self.options)

    def done(self) -> bool:
        future = getattr(self._answer, "upload_completion", self._answer)
        return bool(future.done())

    def close(self) -> None:
        pass


class DcpBest(DcpAsync):
    """A process of its own, and memory shared with it that is kept."""

    def __init__(self, folder: Path, world: World) -> None:
        super().__init__(folder, world)
        self._stager = DefaultStager(StagingOptions(False, True, False, False))
        self.options = {"async_checkpointer_type": AsyncCheckpointerType.PROCESS, "async_stager": self._stager}

    def close(self) -> None:
        self._stager.close()


WAYS: dict[str, Callable[[Path, World], Way]] = {
    "ours": OurSaver,
    "torch.save": Torch,
    "dcp.save": Dcp,
    "dcp.async_save": DcpAsync,
    "dcp.async_save, process and kept memory": DcpBest,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint")
    parser.add_argument("--megabytes", type=int, default=512, help="of the state over all ranks")
    parser.add_argument("--rounds", type=int, default=4, help="saves of each kind; the first one is reported apart")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = {}
        for name in WAYS:
            figures[name] = _measured(name, Path(folder), options.megabytes, options.rounds)
            print(f"{name}: {figures[name]}", file=sys.stderr, flush=True)
        size = f"{options.megabytes} MB, {RANKS} ranks"
        _print(
            f"first save blocks, {size}", "s", {name: f.first for name, f in figures.items()}, figures["ours"].steady
        )
        _print(f"warm save blocks, {size}", "s", {name: f.steady for name, f in figures.items()}, 0.15)
        blocked = {name: f.steady / figures["torch.save"].steady for name, f in figures.items()}
        _print(f"warm save blocks, as a share of torch.save, {size}", "ratio", blocked, 0.1)
        _print(f"until it is on disk, {size}", "s", {name: f.total for name, f in figures.items()}, None)
        _print(
            f"step meanwhile, {size}", "ratio to a quiet step", {name: f.slowdown for name, f in figures.items()}, None
        )
        _print_loads(Path(folder), options.megabytes)
        shares = checkpoint_faults.shares(Path(folder))
        for metric, unit, values, aim in checkpoint_plan.rows(Path(folder) / "plan"):
            _print(metric, unit, values, aim)
    _print("injected faults that are found", "share", shares, 1.0, better="higher")


def _measured(name: str, folder: Path, megabytes: int, rounds: int) -> Figures:
    """One way's figures, in processes of its own; of each save the slower rank's."""
    context, home = multiprocessing.get_context("spawn"), folder / name
    home.mkdir()
    with ProcessPoolExecutor(RANKS, context) as pool:
        ranks = [pool.submit(_rank, name, rank, home, megabytes, rounds) for rank in range(RANKS)]
        results = [rank.result() for rank in ranks]
    blocked = [max(times) for times in zip(*(result["blocked"] for result in results), strict=True)]
    totals = [max(times) for times in zip(*(result["total"] for result in results), strict=True)]
    slower = [result["slowdown"] for result in results]
    return Figures(blocked[0], statistics.median(blocked[1:]), statistics.median(totals[1:]), max(slower))


def _rank(name: str, rank: int, folder: Path, megabytes: int, rounds: int) -> dict[str, Any]:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29501"}
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/.ranks", rank=rank, world_size=RANKS)
    engine = Engine(megabytes)
    world = World(rank, RANKS, rank, torch.device("cpu"), Mesh(replicas=RANKS))
    with contextlib.closing(WAYS[name](folder, world)) as way:
        if isinstance(way, OurSaver):
            way.prepare(engine)
        quiet = [engine.step() for _ in range(QUIET_STEPS)]
        blocked, totals, meanwhile = [], [], []
        for number in range(1, rounds + 1):
            dist.barrier()
            begun = time.perf_counter()
            way.save(engine, number)
            blocked.append(time.perf_counter() - begun)
            while not _all(way.done()):
                meanwhile.append(engine.step())
            totals.append(time.perf_counter() - begun)
            quiet += [engine.step() for _ in range(2)]
    slowdown = statistics.mean(meanwhile) / statistics.median(quiet) if meanwhile else 1.0
    dist.destroy_process_group()
    return {"blocked": blocked, "total": totals, "slowdown": slowdown}


def _all(done: bool) -> bool:
    """Whether all ranks are done: they stop stepping together."""
    n_unfinished = torch.tensor(float(not done))
    dist.all_reduce(n_unfinished)
    return not n_unfinished


def _print_loads(folder: Path, megabytes: int) -> None:
    """One process loads what two ranks have saved; the files are in the page cache."""
    commit = fence.commits(folder / "ours" / "store")[-1]
    checkpoint = folder / "ours" / commit.folder
    begun = time.perf_counter()
    contents_reader = contents.open_verified(checkpoint, commit.manifest)
    verified = time.perf_counter() - begun
    tensors = {name: torch.empty(contents_reader.tensor_type(name).shape) for name in contents_reader.tensor_names("")}
    begun = time.perf_counter()
    contents_reader.load(tensors)
    loaded = time.perf_counter() - begun
    begun = time.perf_counter()
    load(
        {name: torch.empty_like(t) for name, t in tensors.items()},
        checkpoint_id=folder / "dcp.save" / "2",
        no_dist=True,
    )
    torch_seconds = time.perf_counter() - begun
    size = f"{megabytes} MB, 2 ranks' by 1"
    _print(
        f"load and reshard, verified, {size}",
        "s",
        {"ours": verified + loaded, "dcp.load, not verified": torch_seconds},
        None,
    )
    rate = contents_reader.manifest.bytes / verified / 1e9
    _print("verification, one process", "GB/s", {"ours": rate}, None, better="higher")


def _print(metric: str, unit: str, values: dict[str, float], aim: float | None, better: str = "lower") -> None:
    line = {"benchmark": "checkpoint", "metric": metric, "unit": unit, "better": better}
    peers = {name: value for name, value in values.items() if name != "ours"}
    print(json.dumps({**line, "ours": values["ours"], "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
