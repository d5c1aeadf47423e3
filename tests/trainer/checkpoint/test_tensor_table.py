"""The tensor table: each rank writes its part of it, and a rank that resumes reads only what it needs of it."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from slipway.trainer.base import digest
from slipway.trainer.checkpoint import restore
from slipway.trainer.checkpoint.disk import contents, tensor_table, verification
from slipway.trainer.checkpoint.disk.manifest import MANIFEST, CheckpointManifest, TensorEntry
from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint
from slipway.trainer.checkpoint.disk.tensor_table import TensorTable, order, part_name
from slipway.trainer.checkpoint.saving import planning
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from tests.trainer import gang
from tests.trainer.checkpoints import ALONE, TOKEN, SmallEngine, chunks, durable, outcomes, progress, saved, saving

RANKS = 3


def in_the_older_layout(folder: Path, sha256: str) -> str:
    """Make a checkpoint one of the layout chunks/1, whose manifest has the table; the new SHA-256 of its manifest."""
    manifest = verification.read_manifest(folder, sha256)
    types, chunks_by_name = TensorTable(folder, manifest).types, chunks(folder, manifest)
    entries = {
        name: TensorEntry(tensor_type.dtype, tensor_type.shape, tuple(chunks_by_name[name]))
        for name, tensor_type in types.items()
    }
    files = {name: file for name, file in manifest.files.items() if not name.startswith("tensors")}
    older = CheckpointManifest("chunks/1", files, entries).encode()
    for name in set(manifest.files) - set(files):
        (folder / name).unlink()
    (folder / MANIFEST).write_bytes(older)
    return digest.sha256(older)


def test_a_checkpoint_whose_manifest_has_the_table_is_still_loaded(tmp_path: Path) -> None:
    engine = SmallEngine()
    [commit] = saved(tmp_path, 1, engine=engine)
    folder = tmp_path / "durable" / commit.folder
    sha256 = in_the_older_layout(folder, commit.manifest)
    resumed = SmallEngine(seed=9)
    restore.load(resumed, contents.open_verified(folder, sha256), ALONE)
    for name, value in engine.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value), name
    assert contents.open_verified(folder, sha256, "model").tensors("model").keys() == engine.model.state_dict().keys()


def test_the_manifest_itself_names_no_tensor(tmp_path: Path) -> None:
    [commit] = saved(tmp_path, 1)
    folder = tmp_path / "durable" / commit.folder
    assert set(json.loads((folder / MANIFEST).read_bytes())) == {"format", "layout", "files"}
    assert set(TensorTable(folder, verification.read_manifest(folder, commit.manifest)).types) > {"model/0.weight"}


def test_a_table_that_is_changed_is_damage_and_is_not_decoded(tmp_path: Path) -> None:
    [commit] = saved(tmp_path, 1)
    folder = tmp_path / "durable" / commit.folder
    path = folder / part_name(0)
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    checkpoint = contents.open_unverified(folder, commit.manifest)
    with pytest.raises(DamagedCheckpoint, match=f"{part_name(0)}: found BLAKE3"):
        checkpoint.tensors("model")


def test_a_table_without_some_elements_is_damage(tmp_path: Path) -> None:
    [commit] = saved(tmp_path, 1)
    folder = tmp_path / "durable" / commit.folder
    sha256 = in_the_older_layout(folder, commit.manifest)
    manifest = verification.read_manifest(folder, sha256)
    entry = dataclasses.replace(manifest.tensors["model/0.weight"], chunks=())
    short = dataclasses.replace(manifest, tensors={**manifest.tensors, "model/0.weight": entry}).encode()
    (folder / MANIFEST).write_bytes(short)
    with pytest.raises(DamagedCheckpoint, match=r"found no chunks for 192 elements of {'model/0.weight': 192}"):
        contents.open_verified(folder, digest.sha256(short)).tensors("model")


def test_a_rank_looks_at_its_own_part_first_then_at_rank_0s_and_then_at_the_nearest() -> None:
    assert order(3, 6) == [3, 0, 2, 4, 1, 5]
    assert order(0, 3) == [0, 1, 2]


def test_ranks_that_hold_parts_of_other_tensors_are_an_error() -> None:
    def offer(*names: str) -> planning.Offer:
        return planning.Offer(SavePlan([]), {}, digest.of_bytes(str(names).encode()))

    with pytest.raises(ValueError, match="rank 2 does not hold parts of the same tensors as rank 0"):
        planning.decide(DefaultSavePlanner(), [offer("one"), offer("one"), offer("other")])


class Sharded(SmallEngine):
    """A model that is divided over the ranks, and its AdamW."""

    def __init__(self, world: World, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(16, 12), nn.Linear(12, 9))
        fully_shard(self.model, mesh=init_device_mesh("cpu", (world.size,)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)
        self.optimizer.step()
        self.extra: dict[str, Any] = {}


def save(world: World, folder: Path) -> None:
    with saving(folder, TOKEN, world) as saver:
        world.all_gather(None)
        saver.save(Sharded(world, seed=1), progress(1))
        outcomes(saver)


def tables_read(world: World, folder: Path) -> list[str]:
    """Load the checkpoint; the names of the parts of the table that this rank has read."""
    restored = restore.newest_verified(folder / "store", world, TOKEN, durable(folder), lambda *_: None, print)
    assert restored is not None
    read, decoded = list[str](), tensor_table.TensorTable._decoded

    def spied(table: TensorTable, name: str) -> tensor_table.Entries:
        read.append(name)
        return decoded(table, name)

    TensorTable._decoded = spied  # type: ignore[method-assign, assignment]
    checkpoint = contents.Contents(restored[1].folder, restored[1].manifest)
    restore.load(Sharded(world, seed=2), checkpoint, world)
    world.all_gather(None)
    return sorted(read)


@pytest.mark.slow
def test_a_rank_of_a_divided_model_reads_its_own_part_of_the_table_and_that_of_rank_0(tmp_path: Path) -> None:
    gang.run(RANKS, save, tmp_path)
    [commit] = fence.commits(tmp_path / "store")
    for rank, read in enumerate(gang.run(RANKS, tables_read, tmp_path)):
        assert read == sorted({part_name(0), part_name(rank), tensor_table.TYPES})
    assert len(list((tmp_path / "durable" / commit.folder).glob("tensors-*.json"))) == RANKS
