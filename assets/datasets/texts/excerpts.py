"""Excerpts: the beginning of a document's text, which shows a person what a rule left out."""

from pathlib import Path

from slipway.assets.datasets.documents.extracts import segments
from slipway.resources import warehouse

LENGTH = 160
"""The most characters of an excerpt."""
BEGINNING = """
    SELECT text FROM read_parquet($segments, filename = 'segment_file') d
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
    WHERE d.file = $file AND d.number = $number AND ($blake3 IS NULL OR d.blake3 = $blake3)
"""


def beginning(index: Path, durable: Path, document: str, blake3: str | None = None) -> str:
    """The beginning of a document, named `<file>#<number>`, on one line.

    Empty for a document without a text, and where the cache of texts has it no more, or another one than that of this
    BLAKE3: an older snapshot has documents that are no longer in the source.
    """
    file, _, number = document.rpartition("#")
    paths = [str(path) for path in segments(index, durable, file) if path.exists()]
    if not paths:
        return ""
    values = {"segments": paths, "index": str(index), "file": file, "number": int(number), "blake3": blake3}
    with warehouse.connect() as connection:
        found = connection.execute(BEGINNING, values).fetchone()
    return in_a_cell(found[0] if found and found[0] else "")


def in_a_cell(text: str) -> str:
    """The beginning of a text on one line, for a cell of a Markdown table."""
    line = " ".join(text.split())
    return (line[:LENGTH] + "…" if len(line) > LENGTH else line).replace("|", "\\|")
