"""Circuit breaker: a server that accepts and never answers costs its deadline once, and not once for each training.

What one request has learnt holds for the next ones of this process, for a few seconds.
"""

import contextlib
import time
from collections.abc import Iterator

from slipway.resources.errors import Unavailable

SECONDS = 5.0
"""How long a server that did not answer is not asked again."""

_until: dict[str, float] = {}


@contextlib.contextmanager
def of(server: str) -> Iterator[None]:
    """Ask a server. Raises Unavailable when it was silent a moment ago, and what the requests raise."""
    if time.monotonic() < _until.get(server, 0.0):
        raise Unavailable("MLflow did not answer a moment ago, and is asked again later")
    try:
        yield
    except Exception as error:
        if _is_silence(error):
            _until[server] = time.monotonic() + SECONDS
        raise


def _is_silence(error: BaseException | None) -> bool:
    """Whether a request got no answer at all; MLflow wraps that into errors of its own."""
    from requests.exceptions import ConnectionError as Unconnected
    from requests.exceptions import Timeout

    while error is not None:
        if isinstance(error, Unconnected | Timeout | ConnectionError | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False
