"""A line is one write, so that lines of several processes on one pipe stay whole."""

import io
import sys
from collections.abc import Callable

import pytest

from slipway.trainer.base import console


class Writes(io.RawIOBase):
    """Each write as the operating system would get it."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self.chunks.append(bytes(data))
        return len(data)


@pytest.mark.parametrize(("stream", "write"), [("stdout", console.say), ("stderr", console.warn)])
def test_a_line_and_its_end_are_one_write(
    monkeypatch: pytest.MonkeyPatch, stream: str, write: Callable[[str], None]
) -> None:
    """As Python writes where PYTHONUNBUFFERED is set: what is printed goes out at once, and in its parts."""
    writes = Writes()
    monkeypatch.setattr(sys, stream, io.TextIOWrapper(writes, write_through=True))  # type: ignore[type-var]
    write("step 8/20 loss 8.1536")
    assert writes.chunks == [b"step 8/20 loss 8.1536\n"]
