"""Ranks for a test: a function run by several processes that have joined a gloo group."""

import datetime
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from slipway.trainer.config.layout import Mesh
from slipway.trainer.node.world import World

PATIENCE = datetime.timedelta(seconds=280)


def run(size: int, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """``function(world, *arguments)`` on every rank; the results by rank. Processes are forked from one that has
    imported all of it, and end with the call.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, function.__module__])
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(size, context) as pool:
        ranks = [pool.submit(_rank, rank, size, folder, function, arguments) for rank in range(size)]
        return [rank.result(PATIENCE.total_seconds()) for rank in ranks]


def _rank(rank: int, size: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    torch.set_num_threads(1)
    os.environ["RANK"] = os.environ["LOCAL_RANK"] = str(rank)
    os.environ["WORLD_SIZE"] = str(size)
    if size > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=size, timeout=PATIENCE
        )
    try:
        return function(World(rank, size, rank, torch.device("cpu"), Mesh(replicas=size)), *arguments)
    finally:
        if size > 1:
            dist.destroy_process_group()
