"""Faults in stored checkpoints: which share of flipped bits, truncations and missing files a reader finds.

Each fault is made in a file of a small checkpoint, at a seeded place, and undone. A reader that raises anything has
found it; one that returns weights has not.
"""

import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from slipway.trainer.base import atomic, digest
from slipway.trainer.checkpoint.disk import contents, publication, tensor_table
from slipway.trainer.checkpoint.disk.manifest import LAYOUT, CheckpointFile, CheckpointManifest, Chunk, TensorEntry

FLIPS, TRUNCATIONS = 40, 5
Reader = Callable[[], object]


def shares(folder: Path) -> dict[str, float]:
    """The share of faults found, by reader."""
    tensors = {name: t.detach().clone() for name, t in nn.Linear(512, 512).state_dict().items()}
    return {
        "ours": _share(*_our_checkpoint(folder / "faults-ours", tensors)),
        "dcp.load": _share(*_dcp(folder / "faults-dcp", tensors)),
        "torch.load": _share(*_torch(folder / "faults-torch", tensors)),
    }


def _our_checkpoint(folder: Path, tensors: dict[str, torch.Tensor]) -> tuple[list[Path], Reader]:
    """A checkpoint of one file a tensor."""
    data = {f"{name}.bin": t.numpy().tobytes() for name, t in tensors.items()}
    entries = {
        f"model/{name}": TensorEntry("F32", tuple(t.shape), (Chunk((0,) * t.dim(), tuple(t.shape), f"{name}.bin", 0),))
        for name, t in tensors.items()
    }
    data |= {tensor_table.TYPES: tensor_table.encode(entries), tensor_table.part_name(0): tensor_table.encode(entries)}
    files = {name: CheckpointFile(len(content), digest.of_bytes(content)) for name, content in data.items()}
    temporary = folder.with_suffix(".new")
    temporary.mkdir()
    for name, content in data.items():
        atomic.write(temporary / name, [content])
    manifest = publication.publish(temporary, folder, CheckpointManifest(LAYOUT, files))
    return sorted(folder.iterdir()), lambda: contents.open_verified(folder, manifest).tensors("model")


def _dcp(folder: Path, tensors: dict[str, torch.Tensor]) -> tuple[list[Path], Reader]:
    with warnings.catch_warnings(action="ignore"):
        save(tensors, checkpoint_id=folder, no_dist=True)

    def read() -> None:
        with warnings.catch_warnings(action="ignore"):
            load({name: torch.empty_like(t) for name, t in tensors.items()}, checkpoint_id=folder, no_dist=True)

    return sorted(folder.glob("*.distcp")), read


def _torch(folder: Path, tensors: dict[str, torch.Tensor]) -> tuple[list[Path], Reader]:
    folder.mkdir()
    torch.save(tensors, folder / "weights.pt")
    return [folder / "weights.pt"], lambda: torch.load(folder / "weights.pt", weights_only=True)


def _share(paths: list[Path], read: Reader) -> float:
    """The share of faults in these files that make `read` raise."""
    read()
    refusals, chance = [], random.Random(7)
    for number in range(FLIPS + TRUNCATIONS + len(paths)):
        path = paths[number % len(paths)]
        data = path.read_bytes()
        if number < FLIPS:
            bit = chance.randrange(8 * len(data))
            with open(path, "r+b") as file:
                file.seek(bit // 8)
                file.write(bytes([data[bit // 8] ^ (1 << bit % 8)]))
        elif number < FLIPS + TRUNCATIONS:
            os.truncate(path, chance.randrange(len(data)))
        else:
            path.unlink()
        refusals.append(_raises(read))
        path.write_bytes(data)
    return sum(refusals) / len(refusals)


def _raises(read: Reader) -> bool:
    try:
        read()
    except (Exception, CheckpointException):  # the latter is not an Exception
        return True
    return False
