"""The trainer's loop beside a bare PyTorch loop over the same model, optimiser and batch, on this machine's device.

What the trainer adds (data order, mmap windows, heartbeat, ledger, metrics, clipping) should cost nothing: the
aim is 0.97 of the bare loop. On a GPU whose peak is known, MFU too (PaLM's definition, `Decoder.flops_per_token`).
"""

import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from trainer import config, fence, operation, sections, shapes, shards
from trainer.hardware import peak_flops
from trainer.loop import Trainer
from trainer.models import build
from trainer.models.model import Data
from trainer.optim import adamw
from trainer.world import World

VOCABULARY = 32_768
WARMUP, STEPS = 5, 25
SMALL = shapes.DecoderShape(layers=4, width=128, heads=4, kv_heads=2, hidden=384)
BILLION = shapes.DecoderShape(layers=20, width=2048, heads=16, kv_heads=8, hidden=5632)


def main() -> None:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_on(Path(folder), on_gpu)
        ours = _tokens_per_second(settings, _trainer_steps(settings, device))
        bare = _tokens_per_second(settings, _bare_steps(settings, device))
    described = f"{_parameters(settings) / 1e6:.0f} M parameters, {settings.run.precision}, {device.type}"
    _print(f"tokens/s, {described}", "tokens/s", ours, {"bare loop": bare}, 0.97 * bare)
    peak = peak_flops(device, settings.run.precision)
    if peak:
        flops = (
            build(settings.model, Data(vocabulary=VOCABULARY, length=settings.batch.length)).flops_per_sample
            / settings.batch.length
        )
        _print(f"MFU, {described}", "share of peak", ours * flops / peak, {"bare loop": bare * flops / peak}, 0.5)


def settings_on(folder: Path, on_gpu: bool) -> config.Config:
    """A training on random tokens, the size that suits the device."""
    durable, draw = folder / "durable", np.random.default_rng(0)
    documents = [draw.integers(0, VOCABULARY - 1, 4096) for _ in range(256)]
    count = sum(map(len, documents))
    split = shards.Split(len(documents), count, count * 4, (shards.write_shard(durable, documents, "uint16"),))
    tokenizer = shards.Tokenizer("0" * 64, VOCABULARY, VOCABULARY - 1)
    splits = {"train": split, "validation": split}
    snapshot = shards.Snapshot("random", "0" * 64, {"kind": "random"}, {}, tokenizer, "uint16", splits)
    return config.Config(
        training="benchmark",
        snapshot=shards.write_manifest(durable, snapshot),
        model=BILLION if on_gpu else SMALL,
        batch=sections.Batch(sequences=16, length=2048, micro=8)
        if on_gpu
        else sections.Batch(sequences=4, length=128, micro=4),
        optimiser=sections.Optimiser(learning_rate=3e-4),
        run=sections.Run(steps=WARMUP + STEPS, precision="bf16" if on_gpu else "fp32"),
        checkpoint=sections.Checkpoint(every=10_000),
        placement=operation.Placement(store=str(folder / "store"), durable=str(durable), nvme=str(folder / "nvme")),
    )


def _trainer_steps(settings: config.Config, device: torch.device) -> list[float]:
    """Seconds of each step of our loop."""
    store = Path(settings.placement.store)
    token = fence.Token(1)
    fence.claim(store, token, nodes=("local",), cause="benchmark", by="benchmark")
    with contextlib.closing(Trainer(settings, World(0, 1, 0, device), token)) as trainer:
        return [_timed(lambda: trainer.train_step(False), device) for _ in range(WARMUP + STEPS)]


def _bare_steps(settings: config.Config, device: torch.device) -> list[float]:
    """Seconds of each step of the least that trains: forward, backward, clip, step."""
    torch.manual_seed(0)
    model = build(settings.model, Data(vocabulary=VOCABULARY, length=settings.batch.length)).to(device)
    optimiser = adamw(model, replace(settings.optimiser))
    shape = (settings.batch.micro, settings.batch.length + 1)
    tokens = torch.randint(0, VOCABULARY, shape, device=device)
    rounds = settings.batch.sequences // settings.batch.micro

    def step() -> None:
        for _ in range(rounds):
            with torch.autocast(device.type, torch.bfloat16, enabled=settings.run.precision == "bf16"):
                logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten()) / rounds
            torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.optimiser.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return [_timed(step, device) for _ in range(WARMUP + STEPS)]


def _timed(step: Callable[[], object], device: torch.device) -> float:
    begun = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def _tokens_per_second(settings: config.Config, seconds: list[float]) -> float:
    return settings.batch.sequences * settings.batch.length / statistics.median(seconds[WARMUP:])


def _parameters(settings: config.Config) -> int:
    with torch.device("meta"):
        model = build(settings.model, Data(vocabulary=VOCABULARY, length=8))
    return sum(parameter.numel() for parameter in model.parameters())


def _print(metric: str, unit: str, ours: float, peers: dict[str, float], aim: float) -> None:
    line = {"benchmark": "training_loop", "metric": metric, "unit": unit, "better": "higher"}
    print(json.dumps({**line, "ours": ours, "peers": peers, "aim": aim}), flush=True)


if __name__ == "__main__":
    main()
