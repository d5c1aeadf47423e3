"""Helpers for tests of checkpoints: a small engine with every kind of state that a checkpoint holds, and savers."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slipway.trainer.checkpoint.disk.manifest import CheckpointManifest, Chunk
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.disk.tensor_table import TensorTable
from slipway.trainer.checkpoint.restore import PlacesOf
from slipway.trainer.checkpoint.saving.saver import SaveEvent, Saver
from slipway.trainer.checkpoint.tiers.locations import CommitPlace
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.config.operation import Placement
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.conftest import until

ALONE = World(0, 1, 0, torch.device("cpu"))
TOKEN = Token(1)
ROWS, COLUMNS = 12, 16


class SmallEngine:
    """A model with a frozen layer and buffers, its optimiser, and the engine's own state."""

    def __init__(self, seed: int = 0, rows: int = ROWS) -> None:
        torch.manual_seed(seed)
        self.model: nn.Module = nn.Sequential(
            nn.Linear(COLUMNS, rows), nn.BatchNorm1d(rows), nn.Linear(rows, 8, bias=False)
        )
        self.model.get_submodule("2").requires_grad_(False)
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.extra: dict[str, Any] = {"scale": 1.0, "outer": {"momentum": torch.zeros(3), "rounds": 0}}

    def extra_state(self) -> dict[str, Any]:
        return self.extra

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.extra = state

    def own_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load_own_state(self, state: dict[str, torch.Tensor]) -> None:
        assert not state

    def step(self) -> "SmallEngine":
        torch.autograd.backward(self.model(torch.randn(5, COLUMNS)).square().mean())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.extra["outer"]["momentum"] += 1
        self.extra["outer"]["rounds"] += 1
        self.extra["scale"] *= 2
        return self


def progress(step: int) -> TrainingProgress:
    return TrainingProgress(step, 7 * step, 0, {"loss": 1 / step}, {}, {"run": {"steps": 20}}, {"world": 1}, at=12.0)


@contextlib.contextmanager
def saving(folder: Path, token: Token = TOKEN, world: World = ALONE) -> Iterator[Saver]:
    """A saver of an incarnation that this claims."""
    if world.is_rank_zero:
        fence.claim(folder / "store", token, nodes=("local",), cause="a test", by="a test")
    placement = Placement(store=str(folder / "store"), durable=str(folder / "durable"), nvme=str(folder / "nvme"))
    saver = Saver("tiny", placement, world, token)
    try:
        yield saver
    finally:
        saver.close()


def outcomes(saver: Saver) -> list[SaveEvent]:
    """The outcomes of all saves, once the writer has finished them."""
    events: list[SaveEvent] = []

    def done() -> bool:
        events.extend(saver.events(0.1))
        return not saver.busy

    until(done, "the checkpoints to be written")
    return events + saver.events()


def save_of(folder: Path, model: nn.Module, described: TrainingProgress) -> fence.Commit:
    """Save a checkpoint of a model; its commit."""
    engine = SmallEngine()
    engine.model, engine.optimizer = model, torch.optim.AdamW(model.parameters())
    with saving(folder) as saver:
        saver.save(engine, described)
        outcomes(saver)
    return fence.commits(folder / "store")[-1]


def durable(folder: Path) -> PlacesOf:
    """Every commit is in its folder on the durable tier."""
    return lambda commit: [CommitPlace(DURABLE, folder / "durable" / commit.folder)]


def saved(folder: Path, *steps: int, engine: SmallEngine | None = None, token: Token = TOKEN) -> list[fence.Commit]:
    """Save checkpoints of an engine that takes a step before each; all valid commits."""
    engine = engine or SmallEngine()
    with saving(folder, token) as saver:
        for step in steps:
            saver.save(engine.step(), progress(step), last=True)
        events = outcomes(saver)
    assert [event["event"] for event in events] == ["committed"] * len(steps), events
    return fence.commits(folder / "store")


def chunks(folder: Path, manifest: CheckpointManifest) -> dict[str, list[Chunk]]:
    """The places of every tensor's chunks, from the tables of all ranks."""
    chunks_by_name: dict[str, list[Chunk]] = {}
    for part in TensorTable(folder, manifest).parts():
        for name, entry in part.items():
            chunks_by_name.setdefault(name, []).extend(entry.chunks)
    return chunks_by_name


def stop_in_mid_save(saver: Saver, folder: Path, step: int) -> Path:
    """Make the writer stop in the middle of a save, at a file that is a pipe without a reader; the hidden folder."""
    half = folder / "durable" / "checkpoints" / "tiny" / f".{step:09d}.{TOKEN}.partial"
    half.mkdir(parents=True)
    os.mkfifo(half / "optimizer-00000.safetensors")
    saver.save(SmallEngine().step(), progress(step))
    until(lambda: (half / "model-00000.safetensors").exists(), "the first file")
    return half
