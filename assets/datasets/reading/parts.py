"""Parts of a long plain file: a file of many texts, such as a dictionary, is cut where a paragraph or a line ends.

The content decides where: of the ends of paragraphs, or else of lines, that leave a part between half and one and a
half times its size, the one whose last bytes have the lowest hash. So a change in a file changes the parts around it,
and all others are the same documents as before.
"""

import re
import zlib
from collections.abc import Iterable, Iterator

VERSION = "1"
"""The version of this code, raised when the same file would be cut elsewhere."""
ENDS = (re.compile(rb"\n\r?\n"), re.compile(rb"\n"))
"""Of paragraphs, and of lines."""
HASHED = 64
"""The last bytes of a part, whose hash decides where it ends."""


def cut(chunks: Iterable[bytes], size: int, longest: int) -> Iterator[bytes | None]:
    """The bytes of a file in parts of about `size` bytes, in any chunks; no line is cut in two.

    A part is longer than one and a half times `size` if a line is. A line of more than `longest` bytes is not kept in
    memory: None stands for it.
    """
    held, skipping, most = bytearray(), False, size + size // 2
    for chunk in chunks:
        searched = max(len(held), most)
        held += chunk
        while len(held) > most or skipping:
            end = 0 if skipping else _end(bytes(held[:most]), size // 2)
            end = end or held.find(b"\n", 0 if skipping else searched) + 1  # of a long line
            if not end:
                skipping = skipping or len(held) > longest
                held = bytearray() if skipping else held
                break
            yield None if skipping or end > longest else bytes(held[:end])
            del held[:end]
            skipping, searched = False, most
    if held or skipping:
        yield None if skipping or len(held) > longest else bytes(held)


def _end(window: bytes, least: int) -> int:
    """Where the part ends with which `window` begins; 0 if its first line goes on behind the window."""
    for pattern in ENDS:
        ends = [found.end() for found in pattern.finditer(window, least - 1)]
        if ends:
            return min(ends, key=lambda end: zlib.crc32(window[max(0, end - HASHED) : end]))
    return window.rfind(b"\n") + 1
