"""What two ranks send, and the loss that it buys: the same model, data and steps under every way to communicate.

Bytes are those that the kernel counts on each rank's connections to the other (tcpi_bytes_sent), all of a step
included. Tokens are drawn from a Markov chain, so that there is something to learn, and a floor: its entropy.
`python -m benchmarks.communication [STEPS]`; steps are a multiple of 32.
"""

import argparse
import json
import multiprocessing
import os
import socket
import stat
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

from slipway.trainer.config import resolved, sections
from slipway.trainer.config.layout import Mesh
from slipway.trainer.config.operation import Placement
from slipway.trainer.data.sequences import Tokens
from slipway.trainer.loading import order
from slipway.trainer.models.decoder import DecoderShape
from slipway.trainer.models.model import Data
from slipway.trainer.node.world import World
from slipway.trainer.step.engine import Engine
from slipway.trainer.step.schedule import learning_rate

STEPS, RANKS, BATCH, LENGTH, VOCABULARY, HELD_OUT = 256, 2, 16, 32, 128, 64
MODEL = DecoderShape(layers=2, width=64, heads=4, kv_heads=2, hidden=192)
MODES = {
    "DDP, fp32": sections.Communication(),
    "bf16": sections.Communication(compression="bf16"),
    "PowerSGD 4": sections.Communication(compression="powersgd", powersgd_rank=4),
    "local SGD 8": sections.Communication(local_steps=8),
    "DiLoCo 8": sections.Communication(local_steps=8, outer_learning_rate=0.7, outer_momentum=0.9),
    "DiLoCo 32": sections.Communication(local_steps=32, outer_learning_rate=0.7, outer_momentum=0.9),
}
EXACT, LOCAL_UPDATES = "DDP, fp32", "DiLoCo 32"
TCPI_BYTES_SENT = 200
"""Offset of that field in Linux' struct tcp_info."""


@dataclass(frozen=True)
class Reached:
    """By one mode."""

    first_loss: float
    loss: float
    """On the held-out samples before and after, in nats a token."""
    megabytes: float
    """Sent by a rank."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.communication")
    parser.add_argument("steps", nargs="?", type=int, default=STEPS, help="of each mode; a multiple of 32")
    steps = parser.parse_args().steps
    reached = _reached(steps)
    exact = reached[EXACT]
    where = f"{steps} steps on {RANKS} ranks"
    _print(f"loss after {where}", "nats/token", "lower", {n: r.loss for n, r in reached.items()}, 1.02 * exact.loss)
    sent = {name: result.megabytes for name, result in reached.items()}
    _print(f"sent by each rank in {where}", "MB", "lower", sent, 0.5 * exact.megabytes)
    saved = {name: 100 * (1 - result.megabytes / exact.megabytes) for name, result in reached.items()}
    _print("communication saved, beside fp32 gradients at every step", "%", "higher", saved, 50)
    gained = {name: (result.first_loss - result.loss) / result.megabytes for name, result in reached.items()}
    _print(f"loss gained for each MB sent, {where}", "nats/MB", "higher", gained, 2 * gained[EXACT])


def _reached(steps: int) -> dict[str, Reached]:
    """By mode, as rank 0 found it."""
    spawning = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, spawning.Pool(RANKS) as pool:
        arguments = [(rank, Path(folder) / "store", steps) for rank in range(RANKS)]
        results: dict[str, Reached] = pool.starmap(_rank, arguments, chunksize=1)[0]
    return results


def _rank(rank: int, store: Path, steps: int) -> dict[str, Reached]:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    try:
        world = World(rank, RANKS, rank, torch.device("cpu"), Mesh(replicas=RANKS))
        tokens = _tokens(BATCH * steps + HELD_OUT)
        return {name: _train(world, _config(communication, steps), tokens) for name, communication in MODES.items()}
    finally:
        dist.destroy_process_group()


def _train(world: World, settings: resolved.Config, tokens: Tokens) -> Reached:
    """All steps of one mode, as the loop takes them."""
    engine, steps = Engine(settings, world, Data(vocabulary=VOCABULARY, length=LENGTH)), settings.run.steps
    rows = order.rank_slice(BATCH, world.rank, world.size)
    numbers = np.arange(len(tokens), dtype=np.uint64)
    held_out = slice(BATCH * steps, None)

    def measured() -> float:
        return engine.measure(tokens[held_out], numbers[held_out], HELD_OUT * world.size).loss / (HELD_OUT * LENGTH)

    first, sent = measured(), _bytes_sent()
    for step in range(steps):
        now = slice(BATCH * step + rows.start, BATCH * step + rows.stop)
        engine.accumulate(tokens[now], numbers[now])
        engine.clip()
        engine.update(learning_rate(settings.optimizer, step, steps))
        engine.synchronize_if_due(step + 1)
    dist.barrier()
    return Reached(first, measured(), (_bytes_sent() - sent) / 1e6)


def _tokens(sequences: int) -> Tokens:
    """Sequences of a Markov chain: [sequences, LENGTH + 1]."""
    random = np.random.default_rng(1)
    chances = random.dirichlet(np.full(VOCABULARY, 0.05), VOCABULARY).cumsum(1)
    drawn = random.random((LENGTH + 1, sequences))
    rows = np.empty((sequences, LENGTH + 1), np.uint16)
    now = random.integers(0, VOCABULARY, sequences)
    for at in range(LENGTH + 1):
        rows[:, at] = now = np.minimum((chances[now] < drawn[at][:, None]).sum(1), VOCABULARY - 1)
    return rows


def _config(communication: sections.Communication, steps: int) -> resolved.Config:
    return resolved.Config(
        training="benchmark",
        snapshot="0" * 64,
        model=MODEL,
        batch=sections.Batch(sequences=BATCH, length=LENGTH, micro=BATCH),
        optimizer=sections.OptimizerConfig(learning_rate=3e-3, warmup_steps=steps // 16),
        run=sections.Run(steps=steps),
        checkpoint=sections.Checkpoint(every=steps),
        placement=Placement(store="", durable="", nvme=""),
        communication=communication,
    )


def _bytes_sent() -> int:
    """By this process over TCP, on the connections that are open."""
    descriptors = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return sum(_sent_through(descriptor) for descriptor in descriptors if _is_socket(descriptor))


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:  # the descriptor of the listing itself
        return False


def _sent_through(descriptor: int) -> int:
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return 0
        information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    sent: int = struct.unpack_from("Q", information, TCPI_BYTES_SENT)[0]
    return sent


def _print(metric: str, unit: str, better: str, values: dict[str, float], aim: float) -> None:
    peers = {name: value for name, value in values.items() if name != LOCAL_UPDATES}
    line = {"benchmark": "communication", "metric": metric, "unit": unit, "better": better}
    print(
        json.dumps({**line, "ours": values[LOCAL_UPDATES], "mode": LOCAL_UPDATES, "peers": peers, "aim": aim}),
        flush=True,
    )


if __name__ == "__main__":
    main()
