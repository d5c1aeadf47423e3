"""A process of a cluster of Dask: its scheduler, or one worker (`python -m
slipway.assets.datasets.building.dask_process`).

A worker does one task at a time. Only its container limits its memory, because Dask's own limits would pause a worker
whose allocator retains freed memory. SIGTERM ends both; the tasks of a worker go to another one.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import dask
from distributed import Scheduler, Worker

from slipway.assets.datasets.building import dask_cluster
from slipway.assets.datasets.building.dask_cluster import resource, security
from slipway.trainer.base import processes, scratch

PORTS = {"scheduler": 8786, "worker": 8787}
LOOPBACK = "127.0.0.1:0"
"""The address of the HTTP server, which cannot be switched off, if no port is given: nobody else can reach it."""
HEALTH = ["distributed.http.health"]
"""The only routes that it answers, because its other pages require no authentication."""
QUIET = {
    "distributed.worker.profile.enabled": False,  # the profiler samples the worker's stack all the time
    "distributed.scheduler.worker-ttl": "15 minutes",  # a task may hold Python's GIL for minutes
    "distributed.scheduler.http.routes": HEALTH,
    "distributed.worker.http.routes": HEALTH,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m slipway.assets.datasets.building.dask_process", description=__doc__
    )
    parser.add_argument("role", choices=("scheduler", "worker"))
    parser.add_argument("--certificates", type=Path, required=True, help="a folder with ca.crt, tls.crt and tls.key")
    parser.add_argument("--scheduler", help="for a worker: the scheduler's address, tls://host:port")
    parser.add_argument("--port", type=int, help="the port to listen on; 0 uses any free one")
    parser.add_argument("--health", type=int, help="the port of /health, for probes; by default only this machine")
    parser.add_argument("--host", help="the address to listen on; by default, all of this machine")
    parser.add_argument("--bound", action="store_true", help="end with the process that started this one")
    options = parser.parse_args()
    if options.bound:
        processes.die_with_parent()
    if (options.role == "worker") != bool(options.scheduler):
        parser.error("--scheduler: expected the address of the scheduler with a worker, and none with a scheduler")
    options.port = PORTS[options.role] if options.port is None else options.port
    options.health = LOOPBACK if options.health is None else f":{options.health}"
    with dask.config.set(QUIET), scratch.folder("slipway-worker") as folder:
        asyncio.run(_scheduler(options) if options.role == "scheduler" else _worker(options, folder))


async def _scheduler(options: argparse.Namespace) -> None:
    async with Scheduler(
        host=options.host,
        port=options.port,
        protocol="tls://",
        security=security(options.certificates),
        dashboard_address=options.health,
        dashboard=False,
    ) as scheduler:
        sys.stdout.write(f"{scheduler.address}\n")
        sys.stdout.flush()
        _on_term(scheduler.close)
        await scheduler.finished()


async def _worker(options: argparse.Namespace, folder: Path) -> None:
    async with Worker(
        options.scheduler,
        host=options.host,
        port=options.port,
        nthreads=1,
        resources={resource(dask_cluster.digest_of_code()): 1},
        memory_limit=0,
        local_directory=str(folder),
        security=security(options.certificates),
        dashboard_address=options.health,
        dashboard=False,
    ) as worker:
        _on_term(worker.close_gracefully)
        await worker.finished()


def _on_term(close: Callable[[], Awaitable[None]]) -> None:
    """Close on SIGTERM, at most once."""
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Future[None]] = []

    def begin() -> None:
        if not closing:
            closing.append(asyncio.ensure_future(close()))

    loop.add_signal_handler(signal.SIGTERM, begin)


if __name__ == "__main__":
    main()
