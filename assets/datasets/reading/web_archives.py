"""Web archives: WARC files of a crawl (ISO 28500), whose pages are documents, and WET files of their texts.

warcio reads them. Responses other than HTML and plain text, and records about the crawl, are not documents. warcio also
accepts a record with a truncated header, reads a header of any length into memory, and passes data on that it cannot
decompress. Here all of these count as damage.
"""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from slipway.assets.datasets.reading import pages
from slipway.assets.datasets.reading.compression import DamagedFile
from slipway.assets.datasets.reading.document import About, Text, UnfitDocument, document_of, longest_text
from slipway.recipes.dataset import ReadingSection

PAGES = ("text/html", "application/xhtml+xml")
TEXTS = ("text/plain",)
BUFFER = 1 << 18
LONGEST_HEADERS = 1 << 20
"""The most bytes of a record's headers."""
CODINGS = ("", "identity", "gzip", "deflate")
"""The content encodings of records that warcio decompresses."""
UNDONE = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""The first bytes of content that is still compressed with gzip or zstd; no page begins with them."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each page and of each text. Everything after a damaged record is lost."""
    # Imported here, because every Dagster process loads this module and few of them read web archives.
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
    """The lines of headers, with at most LONGEST_HEADERS bytes before a record."""

    def __init__(self, readline: Callable[[int], bytes]) -> None:
        self._readline = readline
        self._bytes = 0
        self._ended = False
        self.begun = False
        """Whether anything besides empty lines was read since the last record."""

    def end(self) -> None:
        """Switch to the content of a record."""
        self._bytes = 0
        self.begun = False
        self._ended = True

    def begin(self) -> None:
        """Switch to headers."""
        self._bytes = 0
        self.begun = False
        self._ended = False

    def readline(self, length: int | None = None) -> bytes:
        """A line, or `length` bytes of it. Raises ValueError if the headers are too long."""
        line = self._readline(min(length or LONGEST_HEADERS, LONGEST_HEADERS))
        self._bytes += 0 if self._ended else len(line)
        self.begun = self.begun or bool(line.strip())
        if self._bytes >= LONGEST_HEADERS:
            raise ValueError("the headers of a record do not end")
        return line


def _breaks_off(record: Any) -> bool:
    """Whether the archive ends inside the headers or the content of a record."""
    if record.rec_headers.get_header("Content-Length") is None:
        return True
    while record.raw_stream.read(BUFFER):
        pass
    return bool(record.raw_stream.limit > 0)


def _kind(record: Any) -> str:
    """The media type of a record's content; empty for a record that is not a document."""
    if record.rec_type == "conversion":
        return "text/plain"
    if record.rec_type != "response" or record.http_headers is None:
        return ""
    return str(record.http_headers.get_header("content-type", "")).partition(";")[0].strip().lower()


def _document(number: int, record: Any, limit: int) -> Text | UnfitDocument | None:
    """The document of a record; None for a record that is not a document."""
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
    if isinstance(read, Text):
        return read._replace(about=_about(record))
    return read


def _coding(record: Any) -> str:
    return str(record.http_headers.get_header("content-encoding", "")).strip().lower()


def _about(record: Any) -> About:
    """The URL of a record, and when it was fetched (ISO 28500, 5.12 and 5.4)."""
    headers = record.rec_headers
    return About(headers.get_header("WARC-Target-URI", ""), "", headers.get_header("WARC-Date", ""))
