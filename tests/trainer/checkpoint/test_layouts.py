"""Resharding: every layout loads the checkpoints of every other layout, bit by bit."""

import itertools
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from slipway.trainer.base import digest
from slipway.trainer.checkpoint import restore
from slipway.trainer.checkpoint.disk import contents, verification
from slipway.trainer.checkpoint.disk.tensor_table import TensorTable
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.fence import Token
from tests.trainer import gang
from tests.trainer.checkpoints import TOKEN, chunks, durable, outcomes, progress, saving

LAYOUTS = {"one": 1, "replicated": 2, "sharded": 2, "tensor": 2, "stages": 2, "sharded over 3": 3, "sharded, tensor": 4}
"""The number of ranks of each layout."""


class Net(nn.Module):
    """Layers with rows that 3 ranks can divide (12), cannot divide (7), and fewer than ranks (2); a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(16, 12), nn.Linear(12, 2)
        self.norm, self.odd = nn.BatchNorm1d(2), nn.Linear(2, 7)
        self.frozen = nn.Linear(7, 5, bias=False).requires_grad_(False)


class LaidOutEngine:
    """An engine over the model in one of the layouts, after one step of its optimiser."""

    def __init__(self, layout: str, world: World, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = Net()
        self.model.norm.get_buffer("running_mean").normal_()
        _lay_out(self.model, layout, world)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                parameter.grad = _gradient(name, parameter, seed)
        self.optimizer.step()

    def extra_state(self) -> dict[str, Any]:
        return {}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        assert state == {}

    def own_state(self) -> dict[str, torch.Tensor]:
        return {}

    def load_own_state(self, state: dict[str, torch.Tensor]) -> None:
        assert state == {}


def _lay_out(model: Net, layout: str, world: World) -> None:
    if layout == "stages":
        for name in (("wide", "narrow"), ("norm", "odd", "frozen"))[1 - world.rank]:
            delattr(model, name)
    if "tensor" in layout:
        mesh = init_device_mesh("cpu", (world.size // 2, 2), mesh_dim_names=("shards", "tensor"))
        plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
        parallelize_module(model, mesh["tensor"], plan)
        if layout == "sharded, tensor":
            fully_shard(model, mesh=mesh["shards"])
    elif "sharded" in layout:
        fully_shard(model, mesh=init_device_mesh("cpu", (world.size,)))


def _gradient(name: str, parameter: Tensor, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed + sum(name.encode()))
    gradient = torch.randn(parameter.shape, generator=draw)
    if isinstance(parameter, DTensor):
        return distribute_tensor(gradient, parameter.device_mesh, parameter.placements)
    return gradient


def digests(engine: LaidOutEngine, world: World) -> dict[str, str]:
    """The digest of every whole tensor of the model and its optimiser."""
    tensors: dict[str, Tensor] = dict(engine.model.state_dict())
    for name, parameter in engine.model.named_parameters():
        tensors |= {f"{name}/{key}": value for key, value in engine.optimizer.state.get(parameter, {}).items()}
    full_tensors = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    digests_of_rank = {
        name: digest.of_bytes(t.detach().contiguous().numpy().tobytes()) for name, t in full_tensors.items()
    }
    return {name: value for rank_digests in world.all_gather(digests_of_rank) for name, value in rank_digests.items()}


def save(world: World, layout: str, folder: Path) -> dict[str, str]:
    """Save a checkpoint in this layout; the digests of its tensors."""
    engine = LaidOutEngine(layout, world, seed=len(layout))
    with saving(folder, world=world) as saver:
        world.all_gather(None)
        saver.prepare(engine)
        saver.save(engine, progress(5))
        events = outcomes(saver)
        world.all_gather(None)
    assert [event["event"] for event in events] == (["committed"] if world.is_rank_zero else [])
    return digests(engine, world)


def load(world: World, layout: str, folder: Path) -> dict[str, dict[str, str]]:
    """Load the checkpoint of each layout; the digests of the loaded tensors, by that layout."""
    digests_by_layout = {}
    for name in LAYOUTS:
        engine = LaidOutEngine(layout, world, seed=99)
        good = restore.newest_verified(folder / name / "store", world, TOKEN, durable(folder / name), print, print)
        assert good is not None
        restore.load(engine, good[1], world)
        digests_by_layout[name] = digests(engine, world)
    return digests_by_layout


@pytest.fixture(scope="module")
def checkpoint_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts")


@pytest.fixture(scope="module")
def saved_digests(checkpoint_root: Path) -> dict[str, dict[str, str]]:
    """The digests that each layout has saved."""
    return {name: gang.run(size, save, name, checkpoint_root / name)[0] for name, size in LAYOUTS.items()}


@pytest.fixture(scope="module")
def loaded(checkpoint_root: Path, saved_digests: dict[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """The digests that each layout has loaded from each."""
    return {name: gang.run(size, load, name, checkpoint_root)[0] for name, size in LAYOUTS.items()}


@pytest.mark.nightly
@pytest.mark.parametrize(("before", "after"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_every_layout_loads_the_checkpoints_of_every_other(
    saved_digests: Any, loaded: Any, before: str, after: str
) -> None:
    assert loaded[after][before] == saved_digests[before]
    assert len(saved_digests[before]) == 12 + 3 * 8


@pytest.mark.nightly
@pytest.mark.parametrize("layout", LAYOUTS)
def test_readers_without_ranks_read_whole_tensors(checkpoint_root: Path, saved_digests: Any, layout: str) -> None:
    (commit,) = fence.commits(checkpoint_root / layout / "store")
    tensors = contents.open_verified(checkpoint_root / layout / "durable" / commit.folder, commit.manifest).tensors(
        "model"
    )
    hashed = {name: digest.of_bytes(tensor.numpy().tobytes()) for name, tensor in tensors.items()}
    assert hashed == {name: value for name, value in saved_digests[layout].items() if "/" not in name}


@pytest.mark.nightly
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_element_is_written_once(checkpoint_root: Path, saved_digests: Any, layout: str) -> None:
    (commit,) = fence.commits(checkpoint_root / layout / "store")
    folder = checkpoint_root / layout / "durable" / commit.folder
    manifest = verification.read_manifest(folder, commit.manifest)
    chunks_by_name = chunks(folder, manifest)
    types = TensorTable(folder, manifest).types
    assert types.keys() == chunks_by_name.keys() and len(types) >= len(saved_digests[layout])
    for name, places_of_it in chunks_by_name.items():
        written = sum(torch.Size(chunk.sizes).numel() for chunk in places_of_it)
        assert written == torch.Size(types[name].shape).numel(), name
    ranks = {name.split("-")[1][:5] for name in manifest.files if name.endswith(".safetensors")}
    assert len(ranks) == LAYOUTS[layout]


def damage_seen_by_one(world: World, folder: Path) -> tuple[int | None, dict[str, str]]:
    """The step that the ranks restore when a file that one of them verifies is damaged."""
    restored = restore.newest_verified(folder / "store", world, TOKEN, durable(folder), lambda *_: None, print)
    world.all_gather(None)
    return restored[0].step if restored else None, fence.set_aside_reasons(folder / "store")


@pytest.mark.slow
def test_damage_in_the_files_of_one_rank_is_known_to_all(tmp_path: Path) -> None:
    gang.run(2, save, "replicated", tmp_path)
    (commit,) = fence.commits(tmp_path / "store")
    for path in sorted((tmp_path / "durable" / commit.folder).glob("*.safetensors")):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        for step, reasons in gang.run(2, damage_seen_by_one, tmp_path):
            assert step is None and path.name in reasons[commit.name]
        for records in ("set-aside", "withdrawn"):
            shutil.rmtree(tmp_path / "store" / records)
        path.write_bytes(content)
    assert gang.run(2, damage_seen_by_one, tmp_path) == [(5, {})] * 2


def killed_writer(world: World, folder: Path) -> list[str]:
    """Rank 1's writer is killed before the save; rank 0 gets the reason why nothing is committed."""
    engine = LaidOutEngine("sharded", world, seed=1)
    with saving(folder, Token(1), world) as saver:
        world.all_gather(None)
        saver.prepare(engine)
        if world.rank == 1:
            os.kill(saver.writer, signal.SIGSTOP)
        saver.save(engine, progress(5))
        if world.rank == 1:
            os.kill(saver.writer, signal.SIGKILL)
        events = outcomes(saver)
        world.all_gather(None)
        saver.save(engine, progress(6))
        events += outcomes(saver)
        world.all_gather(None)
    return [f"{event['event']} {event['step']}: {event.get('reason')}" for event in events]


@pytest.mark.slow
def test_a_dead_writer_of_another_rank_is_reported_at_once_and_replaced(tmp_path: Path) -> None:
    leader, other = gang.run(2, killed_writer, tmp_path)
    assert leader == [
        "commit_failed 5: rank 1: the writer process has died (signal 9)",
        "committed 6: None",
    ]
    assert other == []
