"""A rank of benchmarks/start.py: starts a model as a training does, and says how much memory and time that took.

``torchrun -m benchmarks.parts.start_rank CONFIG ACTION[,ACTION...] FOLDER``, where ACTION is draw, save, restore or
init: `save` leaves a checkpoint in FOLDER, which `restore` reads, and the same weights in the Hugging Face layout,
which `init` reads. Rank 0 writes FOLDER/ACTION.json for the others: the largest of the ranks' figures.
"""

import gc
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slipway.trainer.checkpoint import restore
from slipway.trainer.checkpoint.disk import load_plan  # noqa: F401 (imported before memory is measured)
from slipway.trainer.checkpoint.disk.progress import TrainingProgress
from slipway.trainer.checkpoint.saving.saver import Saver
from slipway.trainer.checkpoint.tiers.locations import CommitPlace
from slipway.trainer.checkpoint.tiers.tier import DURABLE
from slipway.trainer.config import resolved
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Init
from slipway.trainer.config.shapes import Data
from slipway.trainer.data.shards import TokenizerRecord
from slipway.trainer.elastic import process_groups
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.start import export, initial
from slipway.trainer.step.engine import Engine

TOKEN = fence.Token(1)
VOCABULARY = 16_384
TOKENIZER = TokenizerRecord("0" * 64, VOCABULARY, 0)
TINY = DecoderShape(layers=8, width=64, heads=8, kv_heads=8, hidden=64)
"""Starts first, so that what a process imports and allocates once is not counted as the model's."""


def main(path: Path, actions: list[str], folder: Path) -> None:
    config = resolved.load(path)
    with process_groups.join(config) as world:
        data = Data(vocabulary=VOCABULARY, length=config.batch.length)
        _draw(replace(config, model=TINY), data, world, folder)
        for action in actions:
            gc.collect()
            if action == "save":
                _save(config, data, world, folder)
            else:
                figures = _measured(ACTIONS[action], config, data, world, folder)
                if world.is_rank_zero:
                    (folder / f"{action}.json").write_text(json.dumps(figures))


def _measured(action: "Action", config: Config, data: Data, world: World, folder: Path) -> dict[str, float]:
    """The largest of the ranks' figures: seconds, and bytes."""
    before, begun = _start_of_peak(), time.perf_counter()
    engine = action(config, data, world, folder)
    seconds = time.perf_counter() - begun
    gathered = world.all_gather({"seconds": seconds, "peak": _peak() - before, **_sizes(engine)})
    return {name: max(sizes[name] for sizes in gathered) for name in gathered[0]}


def _draw(config: Config, data: Data, world: World, _: Path) -> Engine:
    return Engine(config, world, data)


def _restore(config: Config, data: Data, world: World, folder: Path) -> Engine:
    """As `slipway.trainer.loop.Trainer` does."""
    engine = Engine(config, world, data, draws=False)
    restored = restore.newest_verified(
        Path(config.placement.store),
        world,
        TOKEN,
        lambda commit: [CommitPlace(DURABLE, Path(config.placement.durable) / commit.folder)],
        lambda *_: None,
        lambda _: None,
    )
    assert restored is not None
    restore.load(engine, restored[1], world)
    return engine


def _init(config: Config, data: Data, world: World, folder: Path) -> Engine:
    engine = Engine(config, world, data, draws=False)
    exported = folder / "exported"
    init = Init(layout="huggingface", digest=world.broadcast(initial.digest_of("huggingface", exported)))
    engine.load_weights(initial.source(init, exported, config.model, TOKENIZER, data, world))
    return engine


Action = Callable[[Config, Data, World, Path], Engine]
ACTIONS: dict[str, Action] = {"draw": _draw, "restore": _restore, "init": _init}


def _save(config: Config, data: Data, world: World, folder: Path) -> None:
    """Save a checkpoint of the model and of an AdamW after one step, and export its weights."""
    engine = _draw(config, data, world, folder)
    for parameter in engine.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    engine.update(0.0)
    if world.is_rank_zero:
        fence.claim(Path(config.placement.store), TOKEN, nodes=("local",), cause="a benchmark", by="a benchmark")
    world.broadcast(0)
    saver = Saver(config.training, config.placement, world, TOKEN)
    lineage = {"tokenizer": TOKENIZER.sha256}
    progress = TrainingProgress(1, 1, 0, {}, {}, resolved.dump(config), lineage, at=time.time())
    saver.save(engine, progress, last=True)
    while saver.busy:
        saver.events(1.0)
    saver.events()
    saver.close()
    if world.is_rank_zero:
        commit = fence.commits(Path(config.placement.store))[-1]
        export.export(Path(config.placement.durable) / commit.folder, folder / "exported")


def _sizes(engine: Engine) -> dict[str, int]:
    """Bytes of this rank's weights and moments (its share), and of the largest whole parameter."""
    tensors = list(engine.model.state_dict().values())
    tensors += [moment for moments in engine.optimizer.state.values() for moment in moments.values()]
    largest = max(parameter.numel() * parameter.element_size() for parameter in engine.model.parameters())
    return {"share": sum(_local_bytes(tensor) for tensor in tensors), "largest": largest}


def _local_bytes(tensor: Tensor) -> int:
    local: Any = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())


def _start_of_peak() -> int:
    """Begin the measurement of the peak, in the kernel's own count; returns the bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","), Path(sys.argv[3]))
