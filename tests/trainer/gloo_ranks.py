"""Functions of a test run by several processes that are joined by gloo, each as a rank of a world."""

import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from trainer.world import World


def on_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(world, *arguments)` returns on each rank; `function` stands at the top of its module."""
    with tempfile.TemporaryDirectory() as folder, multiprocessing.get_context("spawn").Pool(count) as pool:
        # A rank waits for all others: each must have a process of the pool to itself, as `chunksize` sees to.
        given = [(rank, count, folder, function, arguments) for rank in range(count)]
        return pool.starmap(_rank, given, chunksize=1)


def _rank(rank: int, count: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{Path(folder, 'store')}", rank=rank, world_size=count)
    try:
        return function(World(rank, count, rank, torch.device("cpu")), *arguments)
    finally:
        dist.destroy_process_group()
