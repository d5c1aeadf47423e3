"""Web archives: WARC files of a crawl (ISO 28500), whose pages are documents, and WET files of their texts.

warcio reads them. Responses of other kinds than HTML and plain text, and records about a crawl, are no documents.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

from assets.datasets.reading import limits, pages
from assets.datasets.reading.about import About
from assets.datasets.reading.compression import DamagedFile
from assets.datasets.reading.items import Text, UnfitDocument
from recipes.dataset import ReadingSection

PAGES, TEXTS = ("text/html", "application/xhtml+xml"), ("text/plain",)


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The document of each page and of each text; what follows a damaged record is lost."""
    # Imported here, because every process of Dagster loads this module and few of them read web archives.
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    limit = limits.text_bytes(reading)
    number = 0
    try:
        for record in ArchiveIterator(stream):
            kind = _kind(record)
            if kind in PAGES + TEXTS:
                yield _document(number, kind, record, limit)
                number += 1
    except DamagedFile as damage:
        yield UnfitDocument(number, damage.args[0])
    except (ArchiveLoadFailed, AttributeError, ValueError, EOFError):  # AttributeError: a record without its URI
        yield UnfitDocument(number, "malformed archive")


def _kind(record: Any) -> str:
    """The media type of what a record holds; empty for a record that is no document."""
    if record.rec_type == "conversion":
        return "text/plain"
    if record.rec_type != "response" or record.http_headers is None:
        return ""
    return str(record.http_headers.get_header("content-type", "")).partition(";")[0].strip().lower()


def _document(number: int, kind: str, record: Any, limit: int) -> Text | UnfitDocument:
    data = record.content_stream().read(limit + 1)
    if len(data) <= limit and record.raw_stream.limit > 0:
        return UnfitDocument(number, "truncated")
    read = pages.document(number, data, limit) if kind in PAGES else limits.document(number, data, limit)
    return read._replace(about=_about(record)) if isinstance(read, Text) else read


def _about(record: Any) -> About:
    """The URL of a record, and when it was fetched (ISO 28500, 5.12 and 5.4)."""
    headers = record.rec_headers
    return About(headers.get_header("WARC-Target-URI", ""), "", headers.get_header("WARC-Date", ""))
