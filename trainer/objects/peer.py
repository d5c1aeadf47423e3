"""A peer: another node, which has staged the same shards and serves them over HTTP
(`slipway.trainer.staging.server`)."""

import http.client
import io
import re
import time
import urllib.error
import urllib.request
from typing import BinaryIO, cast

from slipway.trainer.base import proxy_bypass
from slipway.trainer.base.patience import patiently
from slipway.trainer.objects.origin import Away, Coming, Missing, Unreachable, checked

SECONDS = 10
"""How long a peer may take to send the next bytes."""
SLOWEST = 1 << 20
"""Bytes that a peer must send in `SECONDS`: one that sends a little now and then is as good as away."""
COMING = "Slipway-Coming"
"""The header of a 404 for a file that is about to be there: the bytes that are there so far."""
_COUNT = re.compile(r"[0-9]{1,18}")
PATIENCE_SECONDS = 5.0
"""How long requests to a peer are repeated: short, as other nodes and the durable tier have the same files."""


class PeerOrigin:
    """An origin: another node's server, by its URL."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def __str__(self) -> str:
        return self._url

    def open(self, name: str, offset: int = 0) -> BinaryIO:
        """As `Origin.open`. A broken connection is made again, and continues where it broke."""
        return cast(BinaryIO, _Stream(f"{self._url}/{checked(name)}", offset))


class _Stream(io.RawIOBase):
    """A file of a peer from an offset on, over one connection or several."""

    def __init__(self, url: str, offset: int) -> None:
        super().__init__()
        self._url = url
        self._position = offset
        self._answer: http.client.HTTPResponse | None = None
        self._waited = 0.0
        self._received_meanwhile = 0
        patiently(self._connected, Away, PATIENCE_SECONDS)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        begun = time.monotonic()
        count = patiently(lambda: self._received(buffer), Away, PATIENCE_SECONDS)
        self._position += count
        self._check_rate(count, time.monotonic() - begun)
        return count

    def _check_rate(self, count: int, seconds: float) -> None:
        """Raises Unreachable when too little came in the last `SECONDS` that were waited for the peer."""
        self._waited = self._waited + seconds
        self._received_meanwhile = self._received_meanwhile + count
        if self._waited < SECONDS:
            return
        if self._received_meanwhile < SLOWEST:
            raise Unreachable(f"{self._url}: stalls: {self._received_meanwhile} bytes in {self._waited:.0f} s")
        self._waited = 0.0
        self._received_meanwhile = 0

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
            came = answer.read1(len(buffer))  # the available bytes: a slow peer may take for ever to fill the buffer
            buffer[: len(came)] = came
            if came or not answer.length:
                return len(came)
            reason = f"broke off {answer.length} bytes before the end"
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
        answer.close()
        self._answer = None
        raise Away(f"{self._url}: {reason}")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """No redirects: a bad peer could make a node send requests to addresses that only the node can reach."""

    def redirect_request(self, *arguments: object) -> None:
        """None: the answer counts as a refusal."""


def _get(url: str, offset: int) -> http.client.HTTPResponse:
    """The answer that holds the file from `offset` on; empty at the end of the file."""
    request = urllib.request.Request(url, headers={"Range": f"bytes={offset}-"} if offset else {})
    try:
        answer = cast(http.client.HTTPResponse, proxy_bypass.direct(_NoRedirects()).open(request, timeout=SECONDS))
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
        coming = error.headers.get(COMING, "")
        return Coming(f"{url}: not there yet", int(coming)) if _COUNT.fullmatch(coming) else Missing(f"{url}: missing")
    if error.code == 416:
        return Unreachable(f"{url}: found fewer than {offset + 1} bytes")
    refused = f"{url}: found status {error.code}"
    return Away(refused) if error.code >= 500 or error.code == 429 else Unreachable(refused)
