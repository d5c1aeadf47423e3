"""The heap: memory that a step of a build has freed goes back to the system before the next step begins.

Allocators keep what is freed for later. glibc's, Arrow's and duckdb's do not share it, so what one step leaves in one
of them would add to what the next step takes from another: 30 MB after the documents table.
"""

import contextlib
import ctypes
from collections.abc import Iterator

import pyarrow as pa


@contextlib.contextmanager
def trimmed() -> Iterator[None]:
    """Return to the system, at the end, what Arrow and the C library keep of freed memory; takes milliseconds."""
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        # Only glibc has the function; musl returns memory by itself.
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)
