"""Steps to measure: our loop with everything switched on, a bare PyTorch loop over the same model, and Fabric's.

Each is made once and then stepped from outside, so that what is compared can be measured in turn.
"""

import contextlib
import importlib.util
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn

from slipway.trainer.config import operation, resolved, sections, shapes
from slipway.trainer.data import shards
from slipway.trainer.loop import Trainer
from slipway.trainer.models import build
from slipway.trainer.node.world import World
from slipway.trainer.record import fence
from slipway.trainer.record.recorder import RankRecorder
from slipway.trainer.step.optimizers.momentum import adamw
from slipway.trainer.step.parallel import blocks
from slipway.trainer.step.precision import autocast

VOCABULARY = 32_768
Step = Callable[[], None]


def settings(
    folder: Path, shape: shapes.Shape, batch: sections.Batch, layout: operation.Layout, precision: sections.Precision
) -> resolved.Config:
    """A training on random tokens that lie in `folder`."""
    return training(folder, random_tokens(folder / "durable", batch), shape, batch, layout, precision)


def random_tokens(durable: Path, batch: sections.Batch) -> str:
    """Write a snapshot of random tokens, 64 samples for each of a batch; its manifest's SHA-256."""
    draw = np.random.default_rng(0)
    documents = [draw.integers(0, VOCABULARY - 1, 4 * batch.length) for _ in range(16 * batch.sequences)]
    count = sum(map(len, documents))
    split = shards.TokenSplit(len(documents), count, count * 4, (shards.write_shard(durable, documents, "uint16"),))
    tokenizer = shards.TokenizerRecord("0" * 64, VOCABULARY, VOCABULARY - 1)
    splits = {"train": split, "validation": split}
    snapshot = shards.TextSnapshot("random", "0" * 64, {"kind": "random"}, {}, tokenizer, "uint16", splits)
    return shards.write_manifest(durable, snapshot)


def training(
    folder: Path,
    snapshot: str,
    shape: shapes.Shape,
    batch: sections.Batch,
    layout: operation.Layout,
    precision: sections.Precision,
) -> resolved.Config:
    """A training on a snapshot of `folder`'s durable tier, that saves nothing before its end."""
    durable, store, nvme = folder / "durable", folder / "store", folder / "nvme"
    return resolved.Config(
        training="benchmark",
        snapshot=snapshot,
        model=shape,
        batch=batch,
        optimizer=sections.OptimizerConfig(learning_rate=3e-4),
        run=sections.Run(steps=100_000, precision=precision),
        checkpoint=sections.Checkpoint(every=1_000_000),
        layout=layout,
        placement=operation.Placement(store=str(store), durable=str(durable), nvme=str(nvme)),
    )


def our_step(chosen: resolved.Config, device: torch.device) -> Step:
    """A step of our loop: data order, heartbeat, ledger, figures and the console's line (into a buffer) included."""
    token = fence.Token(1)
    fence.claim(Path(chosen.placement.store), token, nodes=("local",), cause="benchmark", by="benchmark")
    trainer = Trainer(chosen, World(0, 1, 0, device), token, RankRecorder(Path(chosen.placement.store), token, 0))
    trainer.restore()

    def step() -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            trainer.train_step(False)

    return step


def bare(chosen: resolved.Config, device: torch.device) -> Step:
    """The least that trains: forward, backward, clip, step; always the same tokens."""
    model, optimizer, tokens, rounds = _model_and_optimizer(chosen, device)

    def step() -> None:
        for _ in range(rounds):
            with autocast(chosen.run.precision, device):
                logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()) / rounds
            torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), chosen.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def fabric(chosen: resolved.Config, device: torch.device) -> Step:
    """The same through Lightning Fabric, in fp32 or bf16."""
    from lightning_fabric import Fabric

    precision = {"fp32": "32-true", "bf16": "bf16-mixed"}[chosen.run.precision]
    lightning = Fabric(accelerator="gpu" if device.type == "cuda" else "cpu", devices=1, precision=precision)
    model_of_peer, optimizing, tokens, rounds = _model_and_optimizer(chosen, device)
    model, optimizer = lightning.setup(model_of_peer, optimizing)

    def step() -> None:
        for _ in range(rounds):
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()) / rounds
            lightning.backward(loss)
        lightning.clip_gradients(model, optimizer, max_norm=chosen.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def has_fabric() -> bool:
    return importlib.util.find_spec("lightning_fabric") is not None


def in_turn(steps: Mapping[str, Step], device: torch.device, warm_up: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each one's steps: one of each a round, so that what else the machine does meets all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(warm_up + rounds):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds[name].append(time.perf_counter() - begun)
    return {name: times[warm_up:] for name, times in seconds.items()}


def parameters(chosen: resolved.Config) -> int:
    with torch.device("meta"):
        model = build(chosen.model, shapes.Data(vocabulary=VOCABULARY, length=8))
    return sum(parameter.numel() for parameter in model.parameters())


def _model_and_optimizer(
    chosen: resolved.Config, device: torch.device
) -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor, int]:
    """A model with its optimiser, a micro-batch of tokens, and how many of them are a step."""
    torch.manual_seed(0)
    model = build(chosen.model, shapes.Data(vocabulary=VOCABULARY, length=chosen.batch.length)).to(device)
    blocks.set_forward(model, chosen.layout)
    tokens = torch.randint(0, VOCABULARY, (chosen.batch.micro, chosen.batch.length + 1), device=device)
    return model, adamw(model, chosen.optimizer), tokens, chosen.batch.sequences // chosen.batch.micro
