"""A peer: the shards that a node has staged, served read-only over HTTP to the nodes that stage after it.

Starlette's files on uvicorn, ranges included; nothing but shards and manifests can be asked for, and there is
no list of them. On a node: ``python -m trainer.peer --nvme FOLDER --host ADDRESS --port PORT``.
"""

import argparse
import http.client
import io
import json
import os
import socket
import stat
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from trainer.origins import Away, Missing, Unreachable, checked
from trainer.patience import patiently

if TYPE_CHECKING:
    from starlette.applications import Starlette

SECONDS = 10
"""How long a peer may keep silent."""
PATIENCE_SECONDS = 5.0
"""How long a peer may be away: short, as other nodes and the durable tier have the same files."""
CHUNK = 1 << 20


class Peer:
    """An origin: another node's server, by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """As `Origin.open`. A connection that breaks is taken up again where it broke."""
        return cast(BinaryIO, _Stream(f"{self._url}/{checked(name)}", offset))


class _Stream(io.RawIOBase):
    """A file of a peer from an offset on, over as many connections as it takes."""

    def __init__(self, url: str, offset: int) -> None:
        super().__init__()
        self._url, self._position = url, offset
        self._answer: http.client.HTTPResponse | None = None
        patiently(self._connected, Away, PATIENCE_SECONDS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        count = patiently(lambda: self._received(buffer), Away, PATIENCE_SECONDS)
        self._position += count
        return count

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()
        super().close()

    def _connected(self) -> http.client.HTTPResponse:
        if self._answer is None:
            self._answer = _get(self._url, self._position)
        return self._answer

    def _received(self, buffer: bytearray) -> int:
        answer = self._connected()
        try:
            count = answer.readinto(buffer)
            if count or not answer.length:
                return count
            reason = f"broke off {answer.length} bytes before the end"
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        answer.close()
        self._answer = None
        raise Away(f"{self._url}: {reason}")


def _get(url: str, offset: int) -> http.client.HTTPResponse:
    """The answer that holds the file from `offset` on; an empty one at the file's end."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        answer = cast(http.client.HTTPResponse, direct.open(request, timeout=SECONDS))
    except urllib.error.HTTPError as error:
        raise _refusal(url, offset, error) from None
    except (OSError, http.client.HTTPException) as error:
        raise Away(f"{url}: {getattr(error, 'reason', error)}") from None
    if answer.status != (206 if offset else 200):
        answer.close()
        raise Unreachable(f"{url}: found status {answer.status}, expected bytes from {offset} on")
    return answer


def _refusal(url: str, offset: int, error: urllib.error.HTTPError) -> Exception:
    error.close()
    if error.code == 404:
        return Missing(f"{url}: missing")
    if error.code == 416:
        return Unreachable(f"{url}: found fewer than {offset + 1} bytes")
    refused = f"{url}: found status {error.code}"
    return Away(refused) if error.code >= 500 or error.code == 429 else Unreachable(refused)


def application(nvme: Path) -> "Starlette":
    """The server's application: GET and HEAD of shards and manifests below `nvme`, 404 for all else."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import FileResponse, PlainTextResponse, Response
    from starlette.routing import Route

    class Whole(FileResponse):
        chunk_size = CHUNK

    def file(request: Request) -> Response:
        try:
            path = nvme / checked(request.path_params["name"])
            found = path.lstat()
        except (ValueError, OSError):
            found = None
        if found is None or not stat.S_ISREG(found.st_mode):
            return PlainTextResponse("missing", 404)
        return Whole(path, stat_result=found, media_type="application/octet-stream")

    return Starlette(routes=[Route("/{name:path}", file)])


def main(arguments: list[str] | None = None) -> None:
    """Serve until a signal ends it; the first line printed is JSON with the URL, once connections are taken."""
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m trainer.peer", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nvme", type=Path, required=True, help="folder that snapshots are staged in")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    options = parser.parse_args(arguments)
    try:
        listener = socket.create_server((options.host, options.port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        sys.exit(f"peer: {options.host}:{options.port}: found it unusable ({reason}), expected a free one")
    print(json.dumps({"url": f"http://{options.host}:{listener.getsockname()[1]}"}), flush=True)
    settings = uvicorn.Config(application(options.nvme), log_level="warning", access_log=False)
    uvicorn.Server(settings).run(sockets=[listener])


if __name__ == "__main__":
    main()
