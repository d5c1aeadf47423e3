"""The embedded worker: one version of one model in a process of its own, behind OpenAI's API on a loopback port.

The front starts ``python -m slipway.serving.worker``. The worker verifies every byte of the exported model, checks
that it fits into memory, loads it, answers a warm-up question, and only then prints its address. It refuses a model
that must not be served with one line, before any traffic.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.serving.order import WorkerOrder
from slipway.trainer.base import console, parsing
from slipway.trainer.base.processes import die_with_parent

if TYPE_CHECKING:
    import torch

    from slipway.serving.engine.batching import AnswerEngine
    from slipway.serving.engine.network import InferenceDecoder

REFUSED = 3
"""The exit code of a worker that refuses its model."""
MEMORY_SHARE = 0.9
"""The share of the free memory to use; the rest is for the process itself and for others."""


def load(order: WorkerOrder) -> "InferenceDecoder":
    """Verify and load the model and make its cache. Raises Refused, DamagedCheckpoint, ValueError and OSError."""
    import torch

    from slipway.serving.engine import weights
    from slipway.serving.engine.network import Cache, InferenceDecoder, bytes_per_row
    from slipway.serving.engine.weights import Refused

    weights.verify(order.folder, order.manifest)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = _dtype(order.dtype, device)
    room = int(free_bytes(device) * MEMORY_SHARE)
    needed = weights.least_bytes(order.folder, dtype)
    if needed > room:
        raise Refused(f"{order.folder}: the weights take {needed >> 20} MiB, and {room >> 20} MiB of memory are free")
    read = weights.read(order.folder, dtype, device)
    row_bytes = bytes_per_row(read, read.length)
    rows = min(order.rows, (room - needed) // row_bytes)
    if rows < 1:
        raise Refused(
            f"{order.folder}: beside the weights {room - needed >> 20} MiB of memory are free, expected "
            f"{row_bytes >> 20} MiB for one answer of {read.length} tokens"
        )
    return InferenceDecoder(read, Cache.of(read, rows, read.length))


def free_bytes(device: "torch.device") -> int:
    """The memory that this process may still use, in bytes: the GPU's, the machine's, or its control group's."""
    import torch

    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    known = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(known["MemAvailable"].split()[0]) << 10
    with contextlib.suppress(OSError, ValueError):
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, limit - used)
    return free


def warm_up(engine: "AnswerEngine") -> None:
    """Answer a short question, so that the first real request does not wait for one-time initialisation."""
    from slipway.serving.engine.batching import Sequence
    from slipway.serving.engine.sampling_settings import Sampling

    sequence = Sequence([0], 2, Sampling(0.0))
    engine.submit(sequence)
    while not sequence.finish:
        time.sleep(0.001)
    if sequence.error:
        raise ValueError(f"its first answer failed: {sequence.error}")


async def serve(order: WorkerOrder) -> None:
    """Serve until SIGTERM. The first line of output is JSON: the address, or the reason why the model is refused."""
    from aiohttp import web

    from slipway.serving.answers import Answers

    answers = Answers(await asyncio.to_thread(load, order), order)
    answers.engine.start()
    await asyncio.to_thread(warm_up, answers.engine)
    runner = web.AppRunner(answers.application(), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "rows": answers.engine.rows}), flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()
    os._exit(0)  # all answers are finished, and a normal exit would spend a second on finalising torch


def main(arguments: list[str]) -> int:
    """Serve the order in the arguments; returns REFUSED for a model that must not be served."""
    parser = argparse.ArgumentParser(prog="python -m slipway.serving.worker")
    parser.add_argument("--order", required=True, help="a WorkerOrder as JSON")
    parser.add_argument("--parent", type=int, required=True, help="the pid of the front; the worker ends with it")
    options = parser.parse_args(arguments)
    die_with_parent(options.parent)
    from slipway.trainer.checkpoint.disk.reading import DamagedCheckpoint

    fields = parsing.value(options.order)
    order = WorkerOrder(Path(fields.pop("folder")), **fields)
    try:
        asyncio.run(serve(order))
    except (ValueError, DamagedCheckpoint, OSError) as error:
        print(json.dumps({"refused": str(error)}), flush=True)
        return REFUSED
    return 0


def _dtype(name: str, device: "torch.device") -> "torch.dtype":
    import torch

    if name == "auto":
        if device.type == "cuda":
            return torch.bfloat16
        return torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[name]


if __name__ == "__main__":
    console.explain("slipway.serving.worker", "serves one version of a model behind the front")
    sys.exit(main(sys.argv[1:]))
