"""The product itself: a supervised training that is killed, goes on and is profiled; out of memory; an answer."""

import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.peers import steps
from benchmarks.proofs.scene import NEEDS_CUDA, Figures, Scene
from slipway.trainer.base import atomic
from slipway.trainer.config import resolved
from slipway.trainer.config.operation import Hardware, Layout
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Batch, Checkpoint, Run
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.record import fence, ledger

STEPS, EVERY, DIES, PROFILES = 12, 4, 6, 8
SHAPE = DecoderShape(layers=2, width=128, heads=4, kv_heads=2, hidden=256)
BATCH = Batch(sequences=2, length=16, micro=1)
LARGE = DecoderShape(layers=4, width=1024, heads=8, kv_heads=4, hidden=2816)
TOO_LARGE = Batch(sequences=64, length=1024, micro=64)
MEMORY_GIBIBYTES = 4
"""For LARGE: enough for some samples at once, and not for TOO_LARGE's micro-batch."""
ANSWER = 8
"""Tokens."""
LIMITED = """
import sys, torch
torch.cuda.set_per_process_memory_fraction({gibibytes} * 2**30 / torch.cuda.mem_get_info()[1])
from slipway.trainer.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def product(scene: Scene) -> Figures:
    """Train, save, SIGKILL of the rank, and on, bit for bit as if nothing had been; a profile, halving, an answer."""
    with tempfile.TemporaryDirectory() as folder:
        calm, killed = (_trained(scene, Path(folder) / name) for name in ("calm", "killed"))
        yield {"bits after SIGKILL": "equal" if _state(calm) == _state(killed) else "differ"}
        events = ledger.read(Path(killed.placement.store))
        yield {"restored": [_fields(event, "step", "memory", "seconds") for event in _named(events, "restored")]}
        yield {"profiled": [_fields(event, "first", "last", "blocked_seconds") for event in _named(events, "profiled")]}
        assert _state(calm) == _state(killed), "the weights or the optimiser's state differ"
        assert _named(events, "profiled"), "SIGUSR2 has left no profile"
        yield {"stacks by py-spy": _stacks(), "flight recorder": "skipped: one rank has no groups of NCCL"}
        yield {"out of memory": _halved(Path(folder) / "large") if scene.is_gpu else NEEDS_CUDA}
        yield {"answer": _answer(scene, killed, Path(folder) / "exported")}


def _trained(scene: Scene, folder: Path) -> Config:
    """Train to the end under a supervisor; in the folder `killed` a signal ends the rank meanwhile."""
    config = steps.settings(folder, SHAPE, BATCH, Layout(), "bf16" if scene.is_gpu else "fp32")
    run, checkpoint = Run(steps=STEPS, precision=config.run.precision), Checkpoint(every=EVERY)
    config = dataclasses.replace(config, run=run, checkpoint=checkpoint, hardware=Hardware(deterministic=True))
    fence.claim(Path(config.placement.store), fence.Token(1), nodes=("local",), cause="a proof", by="gpu_proof")
    module = ["benchmarks.parts.dying_supervisor", str(DIES), str(PROFILES)]
    program = ["-m", *(module if folder.name == "killed" else ["slipway.trainer.supervisor"])]
    rendezvous = ["--nnodes=1", "--nproc-per-node=1", "--rdzv-id=proof", "--rdzv-endpoint=127.0.0.1:0"]
    _run(scene, [*program, *rendezvous, _written(config, folder)])
    return config


def _written(config: Config, folder: Path) -> str:
    path = folder / "config.json"
    path.write_bytes(atomic.readable_json(resolved.dump(config)))
    return str(path)


def _run(scene: Scene, arguments: Sequence[str]) -> None:
    """Run a program to its end. Raises RuntimeError with what it said last when it fails."""
    own = {"SLIPWAY_INCARNATION": "1", "SLIPWAY_NODE": "local"}
    hidden = {} if scene.is_gpu else {"CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **own, **hidden}
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{arguments[1]} ended with {done.returncode}: {done.stderr[-900:]}")


def _state(config: Config) -> dict[str, bytes]:
    """The bytes of weights and optimiser in the last checkpoint."""
    folder = _last_checkpoint(config)
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}


def _last_checkpoint(config: Config) -> Path:
    commit = fence.commits(Path(config.placement.store))[-1]
    assert commit.step == STEPS
    return Path(config.placement.durable) / commit.folder


def _named(events: Sequence[Any], name: str) -> list[Any]:
    return [event for event in events if event["event"] == name]


def _fields(event: Any, *names: str) -> dict[str, Any]:
    return {name: event.get(name) for name in names}


def _stacks() -> str:
    """Whether py-spy may read the stacks of a process here, this one for example."""
    if not shutil.which("py-spy"):
        return "skipped: py-spy is not installed"
    done = subprocess.run(["py-spy", "dump", "--pid", str(os.getpid())], capture_output=True, text=True)
    return "read" if "_stacks" in done.stdout else f"not read: {done.stderr[-200:]}"


def _halved(folder: Path) -> dict[str, Any]:
    """Steps in too little of the GPU's memory: the micro-batch that was asked for, and the one that fitted."""
    config = steps.settings(folder, LARGE, TOO_LARGE, Layout(), "bf16")
    config = dataclasses.replace(config, run=Run(steps=2, precision="bf16"))
    program = LIMITED.format(gibibytes=MEMORY_GIBIBYTES)
    fence.claim(Path(config.placement.store), fence.Token(1), nodes=("local",), cause="a proof", by="gpu_proof")
    _run(Scene(torch.device("cuda", 0)), ["-c", program, _written(config, folder)])
    events = ledger.read(Path(config.placement.store))
    answers = [_fields(event, "micro", "retried_with") for event in _named(events, "out_of_memory")]
    assert answers, "memory did not run out"
    return {"answers": answers, "steps": len(_named(events, "step"))}


def _answer(scene: Scene, config: Config, target: Path) -> dict[str, Any]:
    """Export the last checkpoint, and let the engine of serving answer from it; random tokens have no tokenizer."""
    from slipway.serving.engine import weights
    from slipway.serving.engine.network import Cache, InferenceDecoder
    from slipway.trainer.start import export

    export.export(_last_checkpoint(config), target)
    dtype = torch.bfloat16 if scene.is_gpu else torch.float32
    read = weights.read(target, dtype, scene.device)
    decoder, tokens = InferenceDecoder(read, Cache.of(read, 1, BATCH.length)), [1, 2, 3]
    with torch.inference_mode():
        logits = decoder.prefill(torch.tensor(tokens, device=scene.device), 0, 0)
        for _ in range(ANSWER):
            tokens.append(int(logits.argmax()))
            logits = decoder.step(torch.tensor(tokens[-1:], device=scene.device), [len(tokens) - 1])
    assert logits.isfinite().all()
    return {"tokens": tokens[-ANSWER:]}
