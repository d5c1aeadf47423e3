"""Web archives: WARC files of a crawl (ISO 28500), whose pages are documents, and WET files of their texts.

warcio reads them. Responses of other kinds than HTML and plain text, and records about a crawl, are no documents.
warcio also takes a record whose header breaks off for a record, a header of any length into memory, and what it cannot
decompress for a page: here these are damage.
"""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from slipway.assets.datasets.reading import pages
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import About, Text, UnfitDocument, document_of, longest_text
from slipway.recipes.dataset import ReadingSection

PAGES, TEXTS = ("text/html", "application/xhtml+xml"), ("text/plain",)
BUFFER = 1 << 18
LONGEST_HEADERS = 1 << 20
"""Bytes of the headers of a record."""
CODINGS = ("", "identity", "gzip", "deflate")
"""How the content of a record may be compressed; warcio decompresses it."""
UNDONE = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How content begins that still is compressed, as gzip or zstd: no page does."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each page and of each text; what follows a damaged record is lost."""
    # Imported here, because every process of Dagster loads this module and few of them read web archives.
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    limit = longest_text(reading)
    number = 0
    try:
        archive = ArchiveIterator(stream)
        headers = _Headers(archive.reader.readline)
        archive.reader.readline = headers.readline
        for record in archive:
            headers.end()
            document = _document(number, record, limit)
            if document is not None:
                yield document
                number += 1
            if _breaks_off(record):
                if document is None or isinstance(document, Text):
                    yield UnfitDocument(number, "truncated")
                return
            headers.begin()
        if headers.begun:
            yield UnfitDocument(number, "truncated")
    except DamagedFile as damage:
        yield UnfitDocument(number, damage.args[0])
    except (ArchiveLoadFailed, AttributeError, ValueError, EOFError):  # AttributeError: a record without its URI
        yield UnfitDocument(number, "malformed archive")


class _Headers:
    """The lines of headers, of which there are at most LONGEST_HEADERS bytes before a record."""

    def __init__(self, readline: Callable[[int], bytes]) -> None:
        self._readline, self._bytes, self._ended = readline, 0, False
        self.begun = False
        """Whether something else than empty lines was read since the last record."""

    def end(self) -> None:
        """What follows is the content of a record."""
        self._bytes, self.begun, self._ended = 0, False, True

    def begin(self) -> None:
        """What follows are headers."""
        self._bytes, self.begun, self._ended = 0, False, False

    def readline(self, length: int | None = None) -> bytes:
        """A line, or `length` bytes of it. Raises ValueError where headers are too long."""
        line = self._readline(min(length or LONGEST_HEADERS, LONGEST_HEADERS))
        self._bytes += 0 if self._ended else len(line)
        self.begun = self.begun or bool(line.strip())
        if self._bytes >= LONGEST_HEADERS:
            raise ValueError("the headers of a record do not end")
        return line


def _breaks_off(record: Any) -> bool:
    """Whether the archive ends within a record: within its headers, which say how long it is, or its content."""
    if record.rec_headers.get_header("Content-Length") is None:
        return True
    while record.raw_stream.read(BUFFER):
        pass
    return bool(record.raw_stream.limit > 0)


def _kind(record: Any) -> str:
    """The media type of what a record holds; empty for a record that is no document."""
    if record.rec_type == "conversion":
        return "text/plain"
    if record.rec_type != "response" or record.http_headers is None:
        return ""
    return str(record.http_headers.get_header("content-type", "")).partition(";")[0].strip().lower()


def _document(number: int, record: Any, limit: int) -> Text | UnfitDocument | None:
    """The document of a record; None for a record that is none."""
    kind = _kind(record)
    if kind not in PAGES + TEXTS:
        return None
    if record.http_headers and _coding(record) not in CODINGS:
        return UnfitDocument(number, "malformed compression")
    data = record.content_stream().read(limit + 1)
    if len(data) <= limit and record.raw_stream.limit > 0:
        return UnfitDocument(number, "truncated")
    if data.startswith(UNDONE):
        return UnfitDocument(number, "malformed compression")
    read = pages.document(number, data, limit) if kind in PAGES else document_of(number, data, limit)
    return read._replace(about=_about(record)) if isinstance(read, Text) else read


def _coding(record: Any) -> str:
    return str(record.http_headers.get_header("content-encoding", "")).strip().lower()


def _about(record: Any) -> About:
    """The URL of a record, and when it was fetched (ISO 28500, 5.12 and 5.4)."""
    headers = record.rec_headers
    return About(headers.get_header("WARC-Target-URI", ""), "", headers.get_header("WARC-Date", ""))
