"""Circuit breaker: a server that never answers costs one time-out, and not one for each training.

After a request without an answer, the next requests of this process fail at once for a few seconds.
"""

import contextlib
import time
from collections.abc import Iterator

from slipway.resources.errors import Unavailable

SECONDS = 5.0
"""How long requests fail at once after one without an answer."""

_until: dict[str, float] = {}


@contextlib.contextmanager
def of(server: str) -> Iterator[None]:
    """A context for requests to a server. Raises Unavailable if the server did not answer a moment ago."""
    if time.monotonic() < _until.get(server, 0.0):
        raise Unavailable("MLflow did not answer a moment ago; it is tried again later")
    try:
        yield
    except Exception as error:
        if _is_silence(error):
            _until[server] = time.monotonic() + SECONDS
        raise


def _is_silence(error: BaseException | None) -> bool:
    """Whether a request got no answer at all. MLflow wraps this in errors of its own."""
    from requests.exceptions import ConnectionError as Unconnected
    from requests.exceptions import Timeout

    while error is not None:
        if isinstance(error, Unconnected | Timeout | ConnectionError | TimeoutError):
            return True
        error = error.__cause__ or error.__context__
    return False
