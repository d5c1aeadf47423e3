"""HTML pages: the document is the main content, without navigation, scripts and styles.

Resiliparse extracts it (Bevendorff et al. 2018, ECIR), which DCLM chose for its speed at equal quality (Li et al. 2024,
arXiv 2406.11794). If it finds no main content, the document is all text of the page.
"""

import re
from collections.abc import Iterator
from typing import BinaryIO

from slipway.assets.datasets.reading import encodings, plain
from slipway.assets.datasets.reading.document import Text, UnfitDocument, document_of
from slipway.recipes.dataset import ReadingSection

BLOCKS = re.compile("<(/?)(?:div|article)(?![a-z0-9])", re.IGNORECASE)
VERSION = "1"
"""The version of this code, raised if the same page would give another text."""
DEEPEST = 1000
"""The deepest nesting of elements for the extraction, which takes time quadratic in it. Real pages are less deep."""


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The one document of a page; the limit is that of the page, markup included."""
    return plain.read_undivided(stream, reading, document)


def document(number: int, data: bytes, limit: int) -> Text | UnfitDocument:
    """The document of a page's bytes, in the encoding that a browser would use."""
    # Imported here, because every Dagster process loads this module and few of them read pages.
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding

    if len(data) > limit:
        return UnfitDocument(number, "longer than the limit")
    encoding = detect_encoding(data, from_html_meta=True) or "utf-8"
    if encoding.startswith("utf-16") and encodings.marked(data) is None:
        # A page that says so in ASCII is in no such encoding: the standard of HTML takes it for UTF-8 (13.2.3.2).
        encoding = detect_encoding(data, from_html_meta=False) or "utf-8"
    page = data.decode(encoding, "replace")
    main = _depth(page) <= DEEPEST and extract_plain_text(_nested(page), main_content=True, alt_texts=False)
    text = main or extract_plain_text(page, alt_texts=False)
    if text:
        return document_of(number, text, limit)
    return UnfitDocument(number, "empty")


def _nested(page: str) -> str:
    """The page with three elements around the content of its body.

    Resiliparse treats a `<ul>` as navigation if fewer than three elements are between it and the body, so simple pages
    would lose all their lists. Marked navigation is left out at any depth.
    """
    from resiliparse.parse.html import HTMLTree

    body = HTMLTree.parse(page).body
    if body is None:
        return page
    return f"<body><div><div><div>{body.html}"


def _depth(page: str) -> int:
    """The deepest nesting of elements that may contain the main content."""
    depth = deepest = 0
    for match in BLOCKS.finditer(page):
        depth = max(0, depth + (-1 if match[1] else 1))
        deepest = max(deepest, depth)
    return deepest
