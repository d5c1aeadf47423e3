"""The front as a process: ``python -m slipway.serving --durable FOLDER`` serves the versions in the records there.

A lock permits one front per durable tier on one machine; on a cluster (`--service`) several may run. The front exits
some time after the last model was stopped, unless it has `--stay`.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Collection
from pathlib import Path

from slipway.serving import draining
from slipway.serving.records import FrontPlace, ServingRecords
from slipway.trainer.base import host_names, lock

LOCK_SECONDS = 2.0
"""Seconds to wait for the lock, longer than another process holds it to look at it."""
SILENT_SECONDS = 300.0
"""Seconds without a byte after which a backend has failed the request, as long as the cluster's Ingress waits."""
IDLE_SECONDS = 2.0
"""Seconds after the last model was stopped until the front exits, if it may."""


async def run(
    records: ServingRecords, listener: socket.socket, service: str, keep_running: bool, names: Collection[str]
) -> None:
    """Serve until SIGTERM, or until no model is served, and then finish the answers in progress.

    `names` are further host names under which the front answers.
    """
    import aiohttp
    from aiohttp import web

    from slipway.serving.front.backends import BackendMaker
    from slipway.serving.front.front import Front

    host, port = listener.getsockname()[:2]
    url = f"http://{host}:{port}"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        front = Front(records, BackendMaker(records.durable, session, service), session, url, names)
        drained = draining.seconds(on_a_cluster=bool(service))
        runner = web.AppRunner(
            front.application(), access_log=None, handler_cancellation=True, shutdown_timeout=drained
        )
        await runner.setup()
        await web.SockSite(runner, listener).start()
        if not service:
            records.keep_front(FrontPlace(url, os.getpid(), socket.gethostname()))
        following = asyncio.create_task(front.run())
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        while not ended.is_set() and not following.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 0.5)
            if not keep_running and time.monotonic() - front.wanted_at > IDLE_SECONDS:
                break
        if following.done():
            following.result()
        following.cancel()
        await runner.cleanup()
        await front.end()


def main(arguments: list[str]) -> int:
    """Serve; returns 0 at once if this durable tier already has a front on this machine."""
    parser = argparse.ArgumentParser(
        prog="python -m slipway.serving", description="Answer requests with the models that are served"
    )
    parser.add_argument("--durable", type=Path, required=True, help="folder of the durable tier")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--or-any-port", action="store_true", help="use any free port if that one is in use")
    parser.add_argument("--service", default="", help="on a cluster: URL of a version's Service, with {name} in it")
    parser.add_argument("--detach", action="store_true", help="return once a front runs, and leave it running")
    parser.add_argument("--stay", action="store_true", help="keep running when no model is served")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    records = ServingRecords(options.durable)
    try:
        names = host_names.named()
        if not options.service:
            lock.until_exit(records.folder, LOCK_SECONDS)
        listener = _listener(options.host, options.port, options.or_any_port)
        if options.detach and os.fork() > 0:
            os._exit(0)  # the caller waits only for this process
        asyncio.run(run(records, listener, options.service, options.stay or bool(options.service), names))
    except lock.LockHeld:
        return 0
    except ValueError as error:
        print(f"serving: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"serving: {options.host}:{options.port}: {error.strerror}; expected a free port", file=sys.stderr)
        return 2
    return 0


def _listener(host: str, port: int, or_any: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError:
        if not or_any:
            raise
        return socket.create_server((host, 0), family=family, backlog=1024)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
