"""Training steps: layouts over a mesh of one rank, and whole steps beside a bare loop. Parts of `gpu_proof`."""

import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from benchmarks import gpu
from benchmarks.peers import steps
from benchmarks.proofs.scene import NEEDS_CUDA, Figures, Scene
from slipway.trainer.config.hardware import peak_flops
from slipway.trainer.config.operation import Layout
from slipway.trainer.config.resolved import Config
from slipway.trainer.config.sections import Batch, OptimizerConfig, Precision
from slipway.trainer.config.shapes import Data
from slipway.trainer.elastic.process_groups import _connect
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.node.world import World
from slipway.trainer.step import parallel
from slipway.trainer.step.engine import Engine

LAYOUTS: tuple[Literal["FSDP", "TP", "DDP"], ...] = ("FSDP", "TP", "DDP")
STEPS = 3
TOLERANCE = {"bf16": 2e-2, "fp8": 5e-2}
"""Of a loss beside that of one rank without a mesh: a layout adds up in another order."""
WIDE = DecoderShape(layers=4, width=1024, heads=8, kv_heads=4, hidden=2816)
SMALL = DecoderShape(layers=1, width=64, heads=4, kv_heads=2, hidden=128)
SECONDS = 100
"""For each way to step, with the time that it takes to compile."""


def sharded(scene: Scene) -> Figures:
    """FSDP2, tensor parallelism and DDP over a mesh of one rank: losses beside those of one rank without any."""
    shape = WIDE if scene.is_gpu else SMALL
    rendezvous = {"store": TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), "rank": 0, "world_size": 1}
    if scene.is_gpu:
        torch.cuda.set_device(scene.device)
    _connect(scene.device, 60.0, rendezvous)
    scene.compile_quickly()
    precisions: tuple[Precision, ...] = ("bf16", "fp8") if scene.is_gpu else ("bf16",)
    if not scene.is_gpu:
        yield {"fp8": NEEDS_CUDA}
    faults = []
    for precision, optimizer in itertools.product(precisions, ("adamw", "muon")):
        expected = _losses(scene, shape, precision, optimizer, Layout())
        compiles = (False, True) if optimizer == "adamw" else (False,)  # what is compiled knows no optimiser
        for layout, compiled in itertools.product(LAYOUTS, compiles):
            name = f"{layout}, {precision}, {optimizer}, {'compiled' if compiled else 'eager'}"
            try:
                with _mesh_of_one(scene, layout):
                    chosen = Layout(shard="full" if layout == "FSDP" else "none", compile=compiled)
                    losses = _losses(scene, shape, precision, optimizer, chosen)
            except Exception as error:  # the others are still to be seen
                faults.append(name)
                yield {name: f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}
                continue
            apart = max(abs(one - other) / abs(other) for one, other in zip(losses, expected, strict=True))
            if apart > TOLERANCE[precision]:
                faults.append(name)
            yield {name: {"losses": losses, "apart": apart}}
    dist.destroy_process_group()
    assert not faults, f"these fail, or differ from one rank's losses: {'; '.join(faults)}"


@contextmanager
def _mesh_of_one(scene: Scene, layout: str) -> Iterator[None]:
    """Have the engine lay its model out over a mesh of one rank, which it otherwise leaves out."""
    known: Any = parallel
    names = ("device_mesh", "_data_ranks_talk", "_divides_matrices")
    originals = {name: getattr(known, name) for name in names}

    def mesh(world: World) -> DeviceMesh:
        return init_device_mesh(scene.device.type, (1, 1, 1, 1), mesh_dim_names=parallel.AXES)

    known.device_mesh = mesh
    known._data_ranks_talk = lambda devices, config: devices is not None and layout != "TP"
    known._divides_matrices = lambda devices: devices is not None and layout == "TP"
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(known, name, function)


def _losses(scene: Scene, shape: DecoderShape, precision: Precision, optimizer: str, layout: Layout) -> list[float]:
    """The losses of the first steps, always of the same samples."""
    torch.compiler.reset()
    length, vocabulary = scene.size(512, 32), 512
    batch = Batch(sequences=4, length=length, micro=2)
    with tempfile.TemporaryDirectory() as folder:
        config = steps.training(Path(folder), "0" * 64, shape, batch, layout, precision)
        config = _with_optimizer(config, OptimizerConfig(kind=optimizer, learning_rate=1e-3))  # type: ignore[arg-type]
        engine = Engine(config, World(0, 1, 0, scene.device), Data(vocabulary=vocabulary, length=length))
        rows = np.random.default_rng(0).integers(0, vocabulary - 1, (4, length + 1)).astype(np.uint16)
        losses = []
        for _ in range(STEPS):
            sums = engine.accumulate(rows, np.arange(4, dtype=np.uint64))
            losses.append(engine.finish(sums).loss)
            engine.update(1e-3)
    return losses


def _with_optimizer(config: Config, optimizer: OptimizerConfig) -> Config:
    return dataclasses.replace(config, optimizer=optimizer)


def step(scene: Scene) -> Figures:
    """Whole steps, of 1 B parameters on a GPU, beside a bare loop: MFU, waits, memory; each in a process of its own."""
    ways: tuple[tuple[Precision, bool], ...] = (("bf16", False), ("bf16", True), ("fp8", True))
    for (precision, compiled), which in itertools.product(ways, ("ours", "bare")):
        name = f"{which}, {precision}, {'compiled' if compiled else 'eager'}"
        if precision == "fp8" and not scene.is_gpu:
            yield {name: NEEDS_CUDA}
            continue
        program = f"from benchmarks.proofs import training; training.stepped({which!r}, {precision!r}, {compiled})"
        yield {name: _figures_of(program, scene)}


def _figures_of(program: str, scene: Scene) -> Any:
    """What a program prints as its last line, or why it ended."""
    environment = {**os.environ, "SLIPWAY_PROOF_DEVICE": str(scene.device)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr[-900:])
    return json.loads(done.stdout.splitlines()[-1])


def stepped(which: Literal["ours", "bare"], precision: Precision, compiled: bool) -> None:
    """Print the figures of one way to step, in this process."""
    scene = Scene(torch.device(os.environ["SLIPWAY_PROOF_DEVICE"]))
    scene.compile_quickly()
    shape, batch = gpu.MODELS["1B"] if scene.is_gpu else (SMALL, Batch(sequences=2, length=32, micro=2))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        chosen = steps.settings(Path(folder), shape, batch, Layout(compile=compiled), precision)
        chosen_step = (steps.our_step if which == "ours" else steps.bare)(chosen, scene.device)
        took = statistics.median(
            steps.in_turn({which: chosen_step}, scene.device, scene.size(4, 1), scene.size(6, 2))[which]
        )
        print(json.dumps({"s": took, **(_gpu_figures(chosen, chosen_step, took) if scene.is_gpu else {})}), flush=True)
    os._exit(0)  # threads of the loop would wait for a folder that is gone


def _gpu_figures(chosen: Config, chosen_step: steps.Step, took: float) -> dict[str, float | None]:
    peak = peak_flops(torch.device("cuda", 0), "bf16")
    return {
        "MFU of bf16": gpu._flops_per_step(chosen) / took / peak if peak else None,
        "waits": gpu.synchronizations_per_step(chosen_step),
        "peak GiB": torch.cuda.max_memory_allocated() / 2**30,
        "retries": torch.cuda.memory_stats()["num_alloc_retries"],
    }
