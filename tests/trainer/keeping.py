"""What tests of checkpoints stand on: a small model with all that a checkpoint has to keep, and savers of it."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.conftest import until
from trainer import fence
from trainer.checkpoint.progress import Progress
from trainer.checkpoint.saver import Event, Saver
from trainer.fence import Token
from trainer.operation import Placement
from trainer.world import World

ALONE = World(0, 1, 0, torch.device("cpu"))
TOKEN = Token(1)
ROWS, COLUMNS = 12, 16


class Keeps:
    """A model with a frozen layer and buffers, its optimiser, and state of the engine's own."""

    def __init__(self, seed: int = 0, rows: int = ROWS) -> None:
        torch.manual_seed(seed)
        self.model: nn.Module = nn.Sequential(
            nn.Linear(COLUMNS, rows), nn.BatchNorm1d(rows), nn.Linear(rows, 8, bias=False)
        )
        self.model.get_submodule("2").requires_grad_(False)
        self.optimiser: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.extra: dict[str, Any] = {"scale": 1.0, "outer": {"momentum": torch.zeros(3), "rounds": 0}}

    def extra_state(self) -> dict[str, Any]:
        return self.extra

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.extra = state

    def own_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load_own_state(self, state: dict[str, torch.Tensor]) -> None:
        assert not state

    def step(self) -> "Keeps":
        torch.autograd.backward(self.model(torch.randn(5, COLUMNS)).square().mean())
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.extra["outer"]["momentum"] += 1
        self.extra["outer"]["rounds"] += 1
        self.extra["scale"] *= 2
        return self


def progress(step: int) -> Progress:
    return Progress(step, 7 * step, 0, {"loss": 1 / step}, {}, {"run": {"steps": 20}}, {"world": 1}, at=12.0)


@contextlib.contextmanager
def saving(folder: Path, token: Token = TOKEN, world: World = ALONE) -> Iterator[Saver]:
    """A saver of an incarnation that is claimed here."""
    if world.leads:
        fence.claim(folder / "store", token, nodes=("local",), cause="a test", by="a test")
    placement = Placement(store=str(folder / "store"), durable=str(folder / "durable"), nvme=str(folder / "nvme"))
    saver = Saver("tiny", placement, world, token)
    try:
        yield saver
    finally:
        saver.close()


def outcomes(saver: Saver) -> list[Event]:
    """What has come of all that is being saved."""
    events: list[Event] = []

    def done() -> bool:
        events.extend(saver.events(0.1))
        return not saver.busy

    until(done, "the checkpoints to be written")
    return events + saver.events()


def save_of(folder: Path, model: nn.Module, described: Progress) -> fence.Commit:
    """A checkpoint of a model; its commit."""
    engine = Keeps()
    engine.model, engine.optimiser = model, torch.optim.AdamW(model.parameters())
    with saving(folder) as saver:
        saver.save(engine, described)
        outcomes(saver)
    return fence.commits(folder / "store")[-1]


def saved(folder: Path, *steps: int, engine: Keeps | None = None, token: Token = TOKEN) -> list[fence.Commit]:
    """Checkpoints of an engine that takes a step before each; all commits there are."""
    engine = engine or Keeps()
    with saving(folder, token) as saver:
        for step in steps:
            saver.save(engine.step(), progress(step), last=True)
        told = outcomes(saver)
    assert [event["event"] for event in told] == ["committed"] * len(steps), told
    return fence.commits(folder / "store")


def held_in_mid_save(kept: Saver, folder: Path, step: int) -> Path:
    """Have the writer stand still with half of a checkpoint written: one of its files is a pipe that nobody reads."""
    half = folder / "durable" / "checkpoints" / "tiny" / f".{step:09d}.{TOKEN}.partial"
    half.mkdir(parents=True)
    os.mkfifo(half / "optimiser-00000.safetensors")
    kept.save(Keeps().step(), progress(step))
    until(lambda: (half / "model-00000.safetensors").exists(), "the first file")
    return half
