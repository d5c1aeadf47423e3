"""Pages: HTML, of which the main content is the document, without navigation, scripts and styles.

Resiliparse finds it (Bevendorff et al. 2018, ECIR), which DCLM took for its speed at equal quality (Li et al. 2024,
arXiv 2406.11794). A page whose main content it does not find is taken with all of its text.
"""

from collections.abc import Iterator
from typing import BinaryIO

from assets.datasets.reading import limits, plain
from assets.datasets.reading.items import Text, UnfitDocument
from recipes.dataset import ReadingSection


def read(stream: BinaryIO, reading: ReadingSection) -> Iterator[Text | UnfitDocument]:
    """The one document of a page; the limit is that of the page, markup included."""
    return plain.whole(stream, reading, document)


def document(number: int, data: bytes, limit: int) -> Text | UnfitDocument:
    """The document of a page's bytes, in whichever encoding a browser would take them to be."""
    # Imported here, because every process of Dagster loads this module and few of them read pages.
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.encoding import detect_encoding

    if len(data) > limit:
        return UnfitDocument(number, "longer than the limit")
    page = data.decode(detect_encoding(data, from_html_meta=True) or "utf-8", "replace")
    text = extract_plain_text(page, main_content=True, alt_texts=False) or extract_plain_text(page, alt_texts=False)
    return limits.document(number, text, limit) if text else UnfitDocument(number, "empty")
