"""Plain files: each file is one document, such as text, Markdown or source code; a very long one is several.

A plain file of megabytes is mostly a collection: a dictionary, a log, all books in one. As one document it would be in
one split as a whole, and its shard and its row as long as it is.
"""

import codecs
import io
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

from slipway.assets.datasets.reading import encodings, limits, parts
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.items import Text, UnfitDocument
from slipway.recipes.dataset import ReadingSection

CHUNK = 1 << 18
PARTS = 16
"""Parts that the longest file that is one document would have: those of a longer file have the size of one."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of the file, or the documents of its parts if it is longer than `whole_megabytes`.

    Where the beginning of a long file is no text, it is set aside as a whole. A damaged file gives none, or the parts
    before the damage, because its missing part is not known.
    """
    longest, limit = limits.whole_bytes(reading), limits.text_bytes(reading)
    try:
        head = stream.read(limit + 1)
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
        return
    document = limits.document(0, head, limit, reading.encoding, detect=True)
    if len(head) <= longest or reading.whole_megabytes is None:
        yield document
        return
    whole = document.text if isinstance(document, Text) else None
    for part in _divided(head, stream, max(1, longest // PARTS), reading):
        yield part._replace(whole=whole) if isinstance(part, Text) else part


def _divided(head: bytes, stream: BinaryIO, size: int, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The documents of the parts, numbered through."""
    limit, number = limits.text_bytes(reading), 0
    try:
        chunks = itertools.chain([head], iter(lambda: cast(io.BufferedReader, stream).read1(CHUNK), b""))
        for part in parts.cut(_in_one_byte(head, chunks), size, limit):
            if part is None or part.strip():
                found = _of_part(number, part, limit, reading)
                yield found
                if number == 0 and isinstance(found, UnfitDocument) and part is not None:
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
    return limits.document(number, part, limit, reading.encoding, detect=True)


def _in_one_byte(head: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks in an encoding in which a newline is one byte: UTF-16 without a mark, by its zero bytes, as UTF-8.

    Raises UnicodeError for bytes that are no text because a tenth of them is zero.
    """
    wide = encodings.without_mark(head)
    if wide is None:
        return iter(chunks)
    return (text.encode("utf-8", "surrogatepass") for text in codecs.iterdecode(chunks, wide, "surrogatepass"))


def whole(
    stream: BinaryIO, reading: ReadingSection, document: Callable[[int, bytes, int], Text | UnfitDocument]
) -> Iterator[Text | UnfitDocument]:
    """What `document` makes of all bytes of a file, up to one more than the limit."""
    limit = limits.text_bytes(reading)
    try:
        data = stream.read(limit + 1)
    except DamagedFile as damage:
        yield UnfitDocument(0, damage.args[0])
        return
    yield document(0, data, limit)
