"""Plain files, such as text, Markdown or source code: each is one document, or several if it is very long.

A plain file of megabytes is mostly a collection: a dictionary, a log, all books in one. As one document it would be in
one split as a whole, and its shard and its row as long as it is. So it is cut where a paragraph or a line ends. The
content decides where: of the ends of paragraphs, or else of lines, that leave a part between half and one and a half
times its size, the one whose last bytes have the lowest hash. So a change in a file changes the parts around it, and
all others are the same documents as before. A recipe may also name a separator that stands between documents, such as a
newline or `<|endoftext|>`.
"""

import codecs
import io
import itertools
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

from slipway.assets.datasets.reading import encodings
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import Text, UnfitDocument, document_of, longest_text, longest_whole_file
from slipway.recipes.dataset import ReadingSection

CHUNK = 1 << 18
PARTS = 16
"""The size of a part is the size limit of a single document divided by this."""

VERSION = "1"
"""The version of this code, raised if the same file would be cut elsewhere."""
ENDS = (re.compile(rb"\n\r?\n"), re.compile(rb"\n"))
"""The ends of paragraphs, and of lines."""
HASHED = 64
"""The number of last bytes of a part whose hash decides its end."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of the file, or the documents of its parts if it is longer than `whole_megabytes`.

    Where the beginning of a long file is no text, it is set aside as a whole. A damaged file gives none, or the parts
    before the damage, because its missing part is not known.
    """
    longest = longest_whole_file(reading)
    limit = longest_text(reading)
    try:
        head = stream.read(limit + 1)
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
        return
    document = document_of(0, head, limit, reading.encoding, detect=True)
    if len(head) <= longest or reading.whole_megabytes is None:
        yield document
        return
    text = document.text if isinstance(document, Text) else None
    for part in _in_parts(head, stream, max(1, longest // PARTS), reading):
        yield part._replace(text_of_file=text) if isinstance(part, Text) else part


def _in_parts(head: bytes, stream: BinaryIO, size: int, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The documents of the parts, numbered through."""
    limit = longest_text(reading)
    number = 0
    try:
        chunks = itertools.chain([head], iter(lambda: cast(io.BufferedReader, stream).read1(CHUNK), b""))
        for part in cut(_in_one_byte(head, chunks), size, limit):
            if part is None or part.strip():
                document = _of_part(number, part, limit, reading)
                yield document
                if number == 0 and isinstance(document, UnfitDocument) and part is not None:
                    return
                number += 1
        if number == 0:
            yield UnfitDocument(0, "empty")
    except DamagedFile as damage:
        yield UnfitDocument(number, damage.args[0])
    except UnicodeError:
        yield UnfitDocument(number, "a binary file" if number == 0 else "not UTF-8")


def _of_part(number: int, part: bytes | None, limit: int, reading: ReadingSection) -> Text | UnfitDocument:
    if part is None:
        return UnfitDocument(number, "longer than the limit")
    return document_of(number, part, limit, reading.encoding, detect=True)


def _in_one_byte(head: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks in an encoding in which a newline is one byte: UTF-16 without a mark, by its zero bytes, as UTF-8.

    Raises UnicodeError for bytes that are no text because a tenth of them is zero.
    """
    wide = encodings.without_mark(head)
    if wide is None:
        return iter(chunks)
    return (text.encode("utf-8", "surrogatepass") for text in codecs.iterdecode(chunks, wide, "surrogatepass"))


def read_undivided(
    stream: BinaryIO, reading: ReadingSection, document: Callable[[int, bytes, int], Text | UnfitDocument]
) -> Iterator[Text | UnfitDocument]:
    """The document that `document` makes of all bytes of a file, read up to one byte above the limit."""
    limit = longest_text(reading)
    try:
        data = stream.read(limit + 1)
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
        return
    yield document(0, data, limit)


def read_divided(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each part that is not blank, numbered by its place among all parts.

    A part that is longer than the limit is not kept in memory.
    """
    assert reading.separator is not None, "only files of a recipe with a separator are divided"
    limit = longest_text(reading)
    number = -1
    try:
        for number, part in enumerate(_between_separators(stream, reading.separator.encode(), limit)):
            if part is None:
                yield UnfitDocument(number, "longer than the limit")
            elif part.strip():
                yield document_of(number, part, limit, reading.encoding)
    except DamagedFile as damage:
        yield UnfitDocument(number + 1, damage.args[0])


def _between_separators(stream: BinaryIO, separator: bytes, longest: int) -> Iterator[bytes | None]:
    """The parts between separators, with None for a part of more than `longest` bytes."""
    waiting = b""
    too_long = False
    while chunk := cast(io.BufferedReader, stream).read1(CHUNK):  # what is there, up to damage
        # The part before the first separator may have begun in earlier chunks, and a separator may be cut in two.
        *ended, waiting = (waiting + chunk).split(separator)
        for part in ended:
            yield None if too_long or len(part) > longest else part
            too_long = False
        if len(waiting) > longest + len(separator):
            waiting = waiting[-len(separator) :]
            too_long = True
    yield None if too_long or len(waiting) > longest else waiting


def cut(chunks: Iterable[bytes], size: int, longest: int) -> Iterator[bytes | None]:
    """The bytes of a file in parts of about `size` bytes, in any chunks; no line is cut in two.

    A part is longer than one and a half times `size` if a line is. A line of more than `longest` bytes is not kept in
    memory: None stands for it.
    """
    buffer = bytearray()
    skipping = False
    most = size + size // 2
    for chunk in chunks:
        searched = max(len(buffer), most)
        buffer += chunk
        while len(buffer) > most or skipping:
            end = 0 if skipping else _end_of_part(bytes(buffer[:most]), size // 2)
            end = end or buffer.find(b"\n", 0 if skipping else searched) + 1  # of a long line
            if not end:
                skipping = skipping or len(buffer) > longest
                buffer = bytearray() if skipping else buffer
                break
            yield None if skipping or end > longest else bytes(buffer[:end])
            del buffer[:end]
            skipping = False
            searched = most
    if buffer or skipping:
        yield None if skipping or len(buffer) > longest else bytes(buffer)


def _end_of_part(window: bytes, least: int) -> int:
    """The end of the part at the beginning of `window`; 0 if its first line continues after the window."""
    for pattern in ENDS:
        ends = [match.end() for match in pattern.finditer(window, least - 1)]
        if ends:
            return min(ends, key=lambda end: zlib.crc32(window[max(0, end - HASHED) : end]))
    return window.rfind(b"\n") + 1
