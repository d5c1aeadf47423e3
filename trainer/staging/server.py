"""The server of a node's staged shards and checkpoints: read-only over HTTP, for the other nodes.

Starlette's files on uvicorn, ranges included. The server gives only shards, manifests and the files of checkpoints, and
no list of them. On a node: ``python -m slipway.trainer.staging.server --nvme FOLDER --host ADDRESS --port PORT``.
"""

import argparse
import json
import os
import select
import socket
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.trainer.base import console, paths
from slipway.trainer.base.processes import die_with_parent
from slipway.trainer.objects.origin import checked
from slipway.trainer.objects.peer import COMING
from slipway.trainer.staging import leases

if TYPE_CHECKING:
    from starlette.applications import Starlette

CHUNK = 1 << 20


def application(nvme: Path) -> "Starlette":
    """The server's application: GET and HEAD of the files below `nvme` that nodes share, 404 for others.

    The 404 for a shard that a window on this node will bring has the bytes that are there (`peer.COMING`).
    """
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, PlainTextResponse, Response
    from starlette.routing import Route

    class WholeFile(FileResponse):
        chunk_size = CHUNK

    def file(request: Request) -> Response:
        try:
            path = nvme / checked(request.path_params["name"])
            file_stat = path.lstat()
        except (ValueError, OSError):
            file_stat = None
        if file_stat is None or not stat.S_ISREG(file_stat.st_mode):
            return PlainTextResponse("missing", 404, _coming(nvme, request.path_params["name"]))
        return WholeFile(path, stat_result=file_stat, media_type="application/octet-stream")

    return Starlette(routes=[Route("/{name:path}", file)])


def _coming(nvme: Path, name: str) -> dict[str, str]:
    """The header of a shard that is about to be there; no header for any other name."""
    path = Path(name)
    if not (paths.PUBLISHED.fullmatch(name) and leases.is_wanted(nvme, path.stem)):
        return {}
    try:
        return {COMING: str(paths.partial(nvme, path.name).stat().st_size)}
    except OSError:  # it is not begun
        return {COMING: "0"}


def main(arguments: list[str] | None = None) -> None:
    """Serve until a signal ends it; the first line printed is JSON with the URL, once connections are taken.

    With an inherited listener, it prints nothing, and imports nothing more before the first request.
    """
    parser = argparse.ArgumentParser(
        prog="python -m slipway.trainer.staging.server",
        description="Serve this node's shards and checkpoints to its peers; a training's ranks start it",
    )
    parser.add_argument("--nvme", type=Path, required=True, help="folder that snapshots are staged in")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--listener", type=int, help="descriptor of a socket that listens already, in place of these")
    parser.add_argument("--parent", type=int, help="pid of the process that starts it, with which it is to end")
    options = parser.parse_args(arguments)
    if options.parent is not None:
        die_with_parent(options.parent)
    if options.listener is not None:
        listener = socket.socket(fileno=options.listener)
        select.select([listener], [], [])
    else:
        listener = _listening(options.host, options.port)
    import uvicorn

    settings = uvicorn.Config(application(options.nvme), log_level="warning", access_log=False)
    uvicorn.Server(settings).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket at this address, after its URL has been printed. Exits if the address is not available."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        sys.exit(f"peer: {host}:{port}: found it unusable ({reason}), expected a free one")
    named = f"[{host}]" if family == socket.AF_INET6 else host
    console.say(json.dumps({"url": f"http://{named}:{listener.getsockname()[1]}"}))
    return listener


if __name__ == "__main__":
    main()
