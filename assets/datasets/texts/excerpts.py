"""Excerpts: the beginning of a document's text, which shows a person what a rule left out."""

from pathlib import Path

from assets.datasets.documents.extracts import segments
from resources import warehouse

LENGTH = 160
"""The most characters of an excerpt."""
BEGINNING = """
    SELECT text FROM read_parquet($segments, filename = 'segment_file') d
    JOIN read_parquet($index) e ON e.name = d.file AND e.segment = parse_filename(d.segment_file, true)
    WHERE d.file = $file AND d.number = $number
"""


def beginning(index: Path, durable: Path, document: str) -> str:
    """The beginning of a document, named `<file>#<number>`, on one line; empty for a document without a text."""
    file, _, number = document.rpartition("#")
    paths = [str(path) for path in segments(index, durable, file)]
    values = {"segments": paths, "index": str(index), "file": file, "number": int(number)}
    with warehouse.connect() as connection:
        found = connection.execute(BEGINNING, values).fetchone()
    return in_a_cell(found[0] if found and found[0] else "")


def in_a_cell(text: str) -> str:
    """The beginning of a text on one line, for a cell of a Markdown table."""
    line = " ".join(text.split())
    return (line[:LENGTH] + "…" if len(line) > LENGTH else line).replace("|", "\\|")
